#include "kernels/bench/machine.h"

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "kernels/matmul/int8.h"
#include "kernels/simd/tile_shapes.h"

namespace bulkhead {
namespace {

constexpr int64_t kReadBytes = int64_t{512} << 20;

clockid_t turn_clock = CLOCK_MONOTONIC;
volatile float sink;

void ReadAll(const std::byte* data, int64_t bytes) {
  const float* p = reinterpret_cast<const float*>(data);
  __m128 sums[8] = {};
  for (int64_t i = 0; i + 32 <= bytes / 4; i += 32) {
    _mm_prefetch(reinterpret_cast<const char*>(p + i) + 2048, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(p + i) + 2112, _MM_HINT_T0);
    for (int s = 0; s < 8; ++s) sums[s] = _mm_add_ps(sums[s], _mm_loadu_ps(p + i + 4 * s));
  }
  for (const __m128 sum : sums) sink = _mm_cvtss_f32(sum);
}

constexpr int64_t kFmaLoops = 2000000;

[[gnu::target("avx512f")]] void FmaAvx512() {
  __m512 sums[12];  // distinct, or the compiler would keep only one
  for (int s = 0; s < 12; ++s) sums[s] = _mm512_set1_ps(static_cast<float>(s));
  const __m512 x = _mm512_set1_ps(0.5f);
  for (int64_t i = 0; i < kFmaLoops; ++i) {
#pragma GCC unroll 12
    for (int s = 0; s < 12; ++s) sums[s] = _mm512_fmadd_ps(x, sums[s], x);
  }
  for (const __m512 sum : sums) sink = _mm512_cvtss_f32(sum);
}

[[gnu::target("avx2,fma")]] void FmaAvx2() {
  __m256 sums[12];
  for (int s = 0; s < 12; ++s) sums[s] = _mm256_set1_ps(static_cast<float>(s));
  const __m256 x = _mm256_set1_ps(0.5f);
  for (int64_t i = 0; i < kFmaLoops; ++i) {
#pragma GCC unroll 12
    for (int s = 0; s < 12; ++s) sums[s] = _mm256_fmadd_ps(x, sums[s], x);
  }
  for (const __m256 sum : sums) sink = _mm256_cvtss_f32(sum);
}

constexpr int kDotSums = 16;  // hide a latency of 6 cycles at two instructions a cycle

// Registers by name: with an array of operands g++ keeps the sums in memory, at a third of the
// speed.
#define BH_DOT_LOOP(Name, instruction)                                                       \
  [[gnu::target("avx512f")]] void Name() {                                                   \
    for (int64_t i = 0; i < kFmaLoops; ++i) {                                                \
      asm volatile(".irp sum,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\t" instruction          \
                   " %%zmm16, %%zmm16, %%zmm\\sum\n\t.endr"                                  \
                   :                                                                         \
                   :                                                                         \
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                     "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");          \
    }                                                                                        \
    _mm256_zeroupper();                                                                      \
  }
BH_DOT_LOOP(DotVnni, "vpdpbusd")
BH_DOT_LOOP(DotBf16, "vdpbf16ps")

constexpr int64_t kTileLoops = 200000;
constexpr int kTileSums = 6;

// As many sums as hide an instruction's latency, of one tile of inputs and one tile of weights.
#define BH_TILE_LOOP(Name, instruction)                                                          \
  void Name() {                                                                                  \
    TileShapes shapes;                                                                           \
    for (int i = 0; i < kTiles; ++i) {                                                           \
      shapes.rows[i] = kTileRegisterRows;                                                        \
      shapes.row_bytes[i] = kTileRegisterBytes;                                                  \
    }                                                                                            \
    asm volatile("ldtilecfg %0" : : "m"(shapes)); /* tiles are zero */                           \
    for (int64_t i = 0; i < kTileLoops; ++i) {                                                   \
      asm volatile(instruction                                                                   \
                   " %tmm7, %tmm6, %tmm0\n\t" instruction " %tmm7, %tmm6, %tmm1\n\t" instruction \
                   " %tmm7, %tmm6, %tmm2\n\t" instruction " %tmm7, %tmm6, %tmm3\n\t" instruction \
                   " %tmm7, %tmm6, %tmm4\n\t" instruction " %tmm7, %tmm6, %tmm5");               \
    }                                                                                            \
    asm volatile("tilerelease");                                                                 \
  }
BH_TILE_LOOP(DotInt8InTiles, "tdpbssd")
BH_TILE_LOOP(DotBf16InTiles, "tdpbf16ps")

}  // namespace

double Machine::Bf16TilePeak() {
  if (isa != Isa::kAvx512Amx) return 0;
  const double seconds = Seconds([&] { pool->Run([](int) { DotBf16InTiles(); }); });
  return 2.0 * kTileSums * 16 * 16 * 32 * kTileLoops * pool->num_threads() / seconds * 1e-9;
}

double Machine::Int8Peak(int64_t rows) {
  if (isa < Isa::kAvx512Vnni) return 0;
  if (isa == Isa::kAvx512Amx && rows >= kMinAmxRows) {
    const double seconds = Seconds([&] { pool->Run([](int) { DotInt8InTiles(); }); });
    return 2.0 * kTileSums * 16 * 16 * 64 * kTileLoops * pool->num_threads() / seconds * 1e-9;
  }
  const double seconds = Seconds([&] { pool->Run([](int) { DotVnni(); }); });
  return 2.0 * kDotSums * 64 * kFmaLoops * pool->num_threads() / seconds * 1e-9;
}

double Machine::Bf16Peak() {
  if (isa == Isa::kAvx512Amx) return FmaPeak();
  if (isa < Isa::kAvx512Bf16) return 0;
  const double seconds = Seconds([&] { pool->Run([](int) { DotBf16(); }); });
  return 2.0 * kDotSums * 32 * kFmaLoops * pool->num_threads() / seconds * 1e-9;
}

double Machine::ReadBandwidth(int round) {
  const int64_t bytes = kTurnBytes * pool->num_threads();
  const int64_t offset = round % std::max<int64_t>(1, kReadBytes / bytes) * bytes;
  const double seconds = Seconds([&] {
    pool->ParallelFor(bytes / 4096, [&](int, int64_t begin, int64_t end) {
      ReadAll(read_buffer.data() + offset + begin * 4096, (end - begin) * 4096);
    });
  });
  return bytes / seconds * 1e-9;
}

double Machine::FmaPeak() {
  if (isa < Isa::kAvx2) return 0;
  const double seconds =
      Seconds([&] { pool->Run([&](int) { isa >= Isa::kAvx512 ? FmaAvx512() : FmaAvx2(); }); });
  const int lanes = isa >= Isa::kAvx512 ? 16 : 8;
  return 2.0 * 12 * lanes * kFmaLoops * pool->num_threads() / seconds * 1e-9;
}

absl::StatusOr<std::unique_ptr<Machine>> Machine::Create(int num_threads, const char* isa) {
  if (num_threads == 1) turn_clock = CLOCK_THREAD_CPUTIME_ID;
  auto machine = std::make_unique<Machine>();
  CpuBackendOptions options;
  options.num_threads = num_threads;
  options.isa = isa;
  BH_ASSIGN_OR_RETURN(machine->isa, ParseIsa(isa));
  for (const auto activation : {ActivationDType::kF32, ActivationDType::kBf16,
                                ActivationDType::kBf16Amx, ActivationDType::kInt8}) {
    if (!CheckBf16Tiles(machine->isa, activation).ok()) continue;
    options.activation = activation;
    options.attention = AttentionOf(activation);
    BH_ASSIGN_OR_RETURN(machine->backends[static_cast<int>(activation)],
                        NewCpuBackend(*machine->device, options));
  }
  BH_ASSIGN_OR_RETURN(machine->pool, ThreadPool::Create(num_threads, true));
  BH_ASSIGN_OR_RETURN(machine->read_buffer, machine->device->Allocate(kReadBytes));
  std::memset(machine->read_buffer.data(), 0, kReadBytes);
  return machine;
}

void Machine::SetWorkspace(const StepLimits& limits, const HeadLayout& heads) {
  for (int i = 0; i < kNumActivationDTypes; ++i) {
    if (backends[i] == nullptr) continue;
    StepLimits its = limits;
    const auto activation = static_cast<ActivationDType>(i);
    its.bf16_tiles = activation == ActivationDType::kBf16Amx;
    its.attention_in_bf16 = AttentionOf(activation) != AttentionDType::kF32;
    workspaces[i] = std::move(device->Allocate(backends[i]->WorkspaceBytes(its, heads))).value();
    backends[i]->SetWorkspace(workspaces[i].data(), its, heads);
  }
}

double BenchNow() {
  timespec now;
  clock_gettime(turn_clock, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace bulkhead
