#include "tests/kernels/cuda/intrinsic_probes.h"

#include "intrinsics.h"

namespace bulkhead::cuda {
namespace {

BH_DEVICE float AsF32(uint32_t bits) { return __uint_as_float(bits); }
BH_DEVICE uint32_t AsBits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

BH_KERNEL(32) ShuffleKernel(ProbeParameters p) {
  GridDependencySynchronize();
  const int lane = LaneIndex();
  p.out[lane] = AsBits(__shfl_sync(kFullMask, AsF32(p.in[lane]), 7 * lane % kWarp));
}

BH_KERNEL(32) ShuffleXorKernel(ProbeParameters p) {
  GridDependencySynchronize();
  const int lane = LaneIndex();
  p.out[lane] = AsBits(__shfl_xor_sync(kFullMask, AsF32(p.in[lane]), 5));
}

BH_KERNEL(32) BallotKernel(ProbeParameters p) {
  GridDependencySynchronize();
  const int lane = LaneIndex();
  const unsigned odd = __ballot_sync(kFullMask, static_cast<int>(p.in[lane] % 2));
  p.out[2 * lane] = odd;
  p.out[2 * lane + 1] = static_cast<uint32_t>(__popc(odd));
}

template <bool kTransposed>
BH_DEVICE void LoadTilesOf(const ProbeParameters& p) {
  auto* const shared = reinterpret_cast<uint32_t*>(SharedMemory());
  const int lane = LaneIndex();
  for (int i = 0; i < 4; ++i) shared[4 * lane + i] = p.in[4 * lane + i];
  __syncwarp();
  uint32_t r[4];
  if (kTransposed) {
    LdMatrixX4Trans(r, shared + 4 * lane);
  } else {
    LdMatrixX4(r, shared + 4 * lane);
  }
  for (int i = 0; i < 4; ++i) p.out[4 * lane + i] = r[i];
}
BH_KERNEL(32) LoadTilesKernel(ProbeParameters p) {
  GridDependencySynchronize();
  LoadTilesOf<false>(p);
}
BH_KERNEL(32) LoadTilesTransposedKernel(ProbeParameters p) {
  GridDependencySynchronize();
  LoadTilesOf<true>(p);
}

BH_KERNEL(32) TransposeTileKernel(ProbeParameters p) {
  GridDependencySynchronize();
  p.out[LaneIndex()] = MovMatrixTrans(p.in[LaneIndex()]);
}

template <bool kF16>
BH_DEVICE void MultiplyOf(const ProbeParameters& p) {
  const uint32_t* const in = p.in + 10 * LaneIndex();
  const uint32_t a[4] = {in[0], in[1], in[2], in[3]};
  const uint32_t b[2] = {in[4], in[5]};
  float c[4] = {AsF32(in[6]), AsF32(in[7]), AsF32(in[8]), AsF32(in[9])};
  if (kF16) {
    MmaF16(c, a, b);
  } else {
    MmaBf16(c, a, b);
  }
  for (int i = 0; i < 4; ++i) p.out[4 * LaneIndex() + i] = AsBits(c[i]);
}
BH_KERNEL(32) MultiplyBf16Kernel(ProbeParameters p) {
  GridDependencySynchronize();
  MultiplyOf<false>(p);
}
BH_KERNEL(32) MultiplyF16Kernel(ProbeParameters p) {
  GridDependencySynchronize();
  MultiplyOf<true>(p);
}

BH_KERNEL(32) CopyKernel(ProbeParameters p) {
  GridDependencySynchronize();
  auto* const shared = reinterpret_cast<uint32_t*>(SharedMemory());
  const int lane = LaneIndex();
  CpAsync16(shared + 4 * lane, p.in + lane / 2 * 4, lane % 2 == 0);
  CpAsyncCommit();
  CpAsyncCommit();
  CpAsyncWait<1>();
  for (int i = 0; i < 4; ++i) p.out[4 * lane + i] = shared[4 * lane + i];
  CpAsyncWait<0>();
}

BH_KERNEL(32) PairKernel(ProbeParameters p) {
  GridDependencySynchronize();
  const int lane = LaneIndex();
  const float low = AsF32(p.in[2 * lane]);
  const float high = AsF32(p.in[2 * lane + 1]);
  p.out[2 * lane] = Bf16Pair(low, high);
  p.out[2 * lane + 1] = F16Pair(low, high);
}

BH_KERNEL(32) WidenKernel(ProbeParameters p) {
  GridDependencySynchronize();
  const int lane = LaneIndex();
  for (int i = 0; i < 2; ++i) {
    const auto bits = static_cast<uint16_t>(p.in[lane] >> (16 * i));
    p.out[4 * lane + 2 * i] = AsBits(F32OfBf16(bits));
    p.out[4 * lane + 2 * i + 1] = AsBits(F32OfF16(bits));
  }
}

BH_KERNEL(32) SelectBytesKernel(ProbeParameters p) {
  GridDependencySynchronize();
  const uint32_t* const in = p.in + 3 * LaneIndex();
  p.out[LaneIndex()] = __byte_perm(in[0], in[1], in[2]);
}

BH_KERNEL(32) BitsAndSumsKernel(ProbeParameters p) {
  GridDependencySynchronize();
  const uint32_t* const in = p.in + 3 * LaneIndex();
  p.out[2 * LaneIndex()] = AndXor(in[0], in[1], in[2]);
  p.out[2 * LaneIndex() + 1] = FmaBf16Pairs(in[0], in[1], in[2]);
}

BH_KERNEL(32) Exp2Kernel(ProbeParameters p) {
  GridDependencySynchronize();
  p.out[LaneIndex()] = AsBits(Exp2(AsF32(p.in[LaneIndex()])));
}

BH_KERNEL(32) LoadStreamKernel(ProbeParameters p) {
  GridDependencySynchronize();
  const Words4 words = LoadStream(p.in + 4 * LaneIndex());
  for (int i = 0; i < 4; ++i) p.out[4 * LaneIndex() + i] = words.w[i];
}

BH_KERNEL(256) SyncBlockKernel(ProbeParameters p) {
  GridDependencySynchronize();
  auto* const shared = reinterpret_cast<uint32_t*>(SharedMemory());
  shared[int(threadIdx.x)] = p.in[int(threadIdx.x)];
  __syncthreads();
  p.out[int(threadIdx.x)] = shared[int(blockDim.x) - 1 - int(threadIdx.x)];
}

// Counts odd words three times, and gives every odd one a place of its own.
BH_KERNEL(256) CountKernel(ProbeParameters p) {
  GridDependencySynchronize();
  auto* const next = reinterpret_cast<int*>(SharedMemory());
  const uint32_t word = p.in[int(threadIdx.x)];
  if (int(threadIdx.x) == 0) *next = 0;
  const int odd = __syncthreads_count(word % 2 == 1);
  if (word % 2 == 1) p.out[256 + atomicAdd(next, 1)] = word;
  const int even = __syncthreads_count(word % 2 == 0);
  const int all = __syncthreads_count(true);
  p.out[int(threadIdx.x)] = static_cast<uint32_t>(odd + 1000 * even + 1000000 * (all + *next));
}

BH_KERNEL(32) BitsOfF32Kernel(ProbeParameters p) {
  GridDependencySynchronize();
  p.out[LaneIndex()] = __float_as_uint(__uint_as_float(p.in[LaneIndex()]));
}

}  // namespace

Probe ShuffleProbe() { return KernelOf<1024>("shuffle", ShuffleKernel); }
Probe ShuffleXorProbe() { return KernelOf<1024>("shuffle_xor", ShuffleXorKernel); }
Probe BallotProbe() { return KernelOf<1024>("ballot", BallotKernel); }
Probe LoadTilesProbe() { return KernelOf<1024>("load_tiles", LoadTilesKernel); }
Probe LoadTilesTransposedProbe() {
  return KernelOf<1024>("load_tiles_transposed", LoadTilesTransposedKernel);
}
Probe TransposeTileProbe() { return KernelOf<1024>("transpose_tile", TransposeTileKernel); }
Probe MultiplyBf16Probe() { return KernelOf<1024>("multiply_bf16", MultiplyBf16Kernel); }
Probe MultiplyF16Probe() { return KernelOf<1024>("multiply_f16", MultiplyF16Kernel); }
Probe CopyProbe() { return KernelOf<1024>("copy", CopyKernel); }
Probe PairProbe() { return KernelOf<1024>("pair", PairKernel); }
Probe WidenProbe() { return KernelOf<1024>("widen", WidenKernel); }
Probe SelectBytesProbe() { return KernelOf<1024>("select_bytes", SelectBytesKernel); }
Probe BitsAndSumsProbe() { return KernelOf<1024>("bits_and_sums", BitsAndSumsKernel); }
Probe Exp2Probe() { return KernelOf<1024>("exp2", Exp2Kernel); }
Probe LoadStreamProbe() { return KernelOf<1024>("load_stream", LoadStreamKernel); }
Probe SyncBlockProbe() { return KernelOf<1024>("sync_block", SyncBlockKernel); }
Probe CountProbe() { return KernelOf<1024>("count", CountKernel); }
Probe BitsOfF32Probe() { return KernelOf<1024>("bits_of_f32", BitsOfF32Kernel); }

}  // namespace bulkhead::cuda
