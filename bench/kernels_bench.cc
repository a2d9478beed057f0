// How near the products come to the machine: 1 row against read bandwidth, many rows against the
// peak of fused multiply-adds; and how long attention takes in each format of the KV cache.
// Ceilings and kernels take turns, so that a busy machine slows both alike; the share is the median
// over the rounds.
//   kernels_bench [threads] [isa] [filter]        filter: the begin of a name, "attend/32768" or
//                                                 "1/bfloat16/down"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/attention_bench.h"
#include "bench/machine.h"

namespace bulkhead {
namespace {

constexpr double kTurnFlops = 1e9;                    // per thread, of a product of many rows
constexpr int64_t kWeightBytes = int64_t{512} << 20;  // of all copies of a weight together

// ---- products

struct Shape {
  const char* name;
  int64_t inputs;
  int64_t outputs;
  int num_slices;
};

struct Weights {
  Buffer memory;
  std::vector<Linear> copies;  // used in turn, so that each comes from memory
};

Weights MakeWeights(Machine& machine, const Shape& shape, DType dtype) {
  LinearShape linear{shape.outputs, shape.inputs, dtype, {}};
  for (int i = 0; i <= shape.num_slices; ++i) {
    linear.k_borders.push_back(shape.inputs * i / shape.num_slices);
  }
  const int64_t bytes = machine.backend->PackedBytes(linear);
  const int64_t count = std::max<int64_t>(1, kWeightBytes / bytes);
  Weights weights;
  weights.memory = std::move(machine.device->Allocate(bytes * count)).value();
  std::vector<float> row(shape.inputs);
  for (size_t i = 0; i < row.size(); ++i) row[i] = 0.01f * (static_cast<int>(i % 17) - 8);
  for (int64_t i = 0; i < count; ++i) {
    weights.copies.push_back(Linear{linear, weights.memory.data() + i * bytes});
    const auto rows_sink = machine.backend->Pack(weights.copies.back());
    const ConstMatrixView view(reinterpret_cast<const std::byte*>(row.data()), DType::kF32, 1,
                               shape.inputs);
    for (int64_t n = 0; n < (i == 0 ? shape.outputs : 0); ++n) rows_sink->PutRows(n, view);
    if (i > 0) std::memcpy(weights.copies[i].packed, weights.copies[0].packed, bytes);
  }
  return weights;
}

void MeasureProduct(Machine& machine, const Shape& shape, DType dtype, int64_t rows) {
  const Weights weights = MakeWeights(machine, shape, dtype);
  std::vector<float> x(rows * shape.inputs, 0.25f);
  std::vector<float> out(rows * shape.outputs);
  const MatrixView x_view(reinterpret_cast<std::byte*>(x.data()), DType::kF32, rows, shape.inputs);
  const MatrixView out_view(reinterpret_cast<std::byte*>(out.data()), DType::kF32, rows,
                            shape.outputs);
  const double flops = 2.0 * rows * shape.inputs * shape.outputs;
  const int64_t bytes = machine.backend->PackedBytes(weights.copies[0].shape);
  const int threads = machine.pool->num_threads();
  const int64_t calls =
      std::max<int64_t>(1, rows < 4 ? kTurnBytes * threads / bytes
                                    : static_cast<int64_t>(kTurnFlops * threads / flops));
  double bandwidth = 0, peak = 0, best = 0;  // best seconds per call last
  std::vector<double> of_bandwidth, of_peak;
  size_t copy = 0;
  for (int round = 0; round < kBenchRounds; ++round) {
    const double bandwidth_now = machine.ReadBandwidth(round);
    const double seconds = Seconds([&] {
                             for (int64_t i = 0; i < calls; ++i) {
                               const Linear& weight =
                                   weights.copies[copy++ % weights.copies.size()];
                               machine.backend->MatMul(x_view, weight, out_view);
                             }
                           }) /
                           calls;
    const double peak_now = machine.FmaPeak();
    bandwidth = std::max(bandwidth, bandwidth_now);
    peak = std::max(peak, peak_now);
    best = round == 0 ? seconds : std::min(best, seconds);
    of_bandwidth.push_back(bytes / seconds * 1e-9 / bandwidth_now);
    of_peak.push_back(peak_now > 0 ? flops / seconds * 1e-9 / peak_now : 0);
  }
  std::printf(
      "%-8s %5ld -> %5ld /%d %-8s rows %3ld  %6.1f of %5.1f GB/s %4.0f %% (%4.0f %%)  %7.1f of "
      "%6.1f "
      "GFLOP/s %4.0f %% (%4.0f %%)\n",
      shape.name, shape.inputs, shape.outputs, shape.num_slices, DTypeName(dtype).data(), rows,
      bytes / best * 1e-9, bandwidth, bytes / best * 1e-7 / bandwidth, 100 * Median(of_bandwidth),
      flops / best * 1e-9, peak, peak > 0 ? flops / best * 1e-7 / peak : 0, 100 * Median(of_peak));
  std::fflush(stdout);
}

// How fast rows of a checkpoint become panels, one thread.
void MeasurePacking(Machine& machine, DType source, DType dtype) {
  const LinearShape shape = LinearShape::Whole(1024, 4096, dtype);
  Buffer packed = std::move(machine.device->Allocate(machine.backend->PackedBytes(shape))).value();
  std::vector<std::byte> rows(1024 * 4096 * DTypeBytes(source), std::byte{0x3C});
  const auto rows_sink = machine.backend->Pack(Linear{shape, packed.data()});
  double best = 0;
  for (int round = 0; round < kBenchRounds / 4; ++round) {
    const ConstMatrixView view(rows.data(), source, 1024, 4096);
    const double seconds = Seconds([&] { rows_sink->PutRows(0, view); });
    best = std::max(best, rows.size() / seconds * 1e-9);
  }
  std::printf("packing %s to %s: %.1f GB/s read on one thread\n", DTypeName(source).data(),
              DTypeName(dtype).data(), best);
}

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const char* isa = argc > 2 ? argv[2] : "auto";
  const std::string filter = argc > 3 ? argv[3] : "";
  auto created = Machine::Create(threads, isa);
  if (!created.ok()) {
    std::fprintf(stderr, "%s\n", created.status().ToString().c_str());
    return 2;
  }
  Machine& machine = **created;
  const int32_t head = 0;
  machine.SetWorkspace({512, 16, 1024}, {1, 1, 64, &head});

  std::printf("%s, %d threads; best (median of quotients)\n", IsaName(machine.isa), threads);
  if (filter.empty() || filter == "pack") {
    MeasurePacking(machine, DType::kBF16, DType::kBF16);
    MeasurePacking(machine, DType::kF32, DType::kBF16);
    MeasurePacking(machine, DType::kBF16, DType::kF32);
    MeasurePacking(machine, DType::kF16, DType::kF16);
  }
  const Shape shapes[] = {{"qkv", 1024, 2048, 1},      {"o", 1024, 1024, 8},
                          {"gate_up", 1024, 5632, 1},  {"down", 2816, 1024, 8},
                          {"lm_head", 1024, 32000, 1}, {"wide", 2816, 2816, 1}};
  for (const int64_t rows : {1, 2, 4, 8, 16, 64, 512}) {
    for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
      for (const Shape& shape : shapes) {
        const std::string name =
            std::to_string(rows) + "/" + std::string(DTypeName(dtype)) + "/" + shape.name;
        if (name.rfind(filter, 0) != 0) continue;
        MeasureProduct(machine, shape, dtype, rows);
      }
    }
  }
  MeasureAttention(machine, filter);
  return 0;
}

}  // namespace
}  // namespace bulkhead

int main(int argc, char** argv) { return bulkhead::Main(argc, argv); }
