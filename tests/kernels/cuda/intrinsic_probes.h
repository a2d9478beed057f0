// Kernels of one word each (kernels/cuda/device/intrinsics.h), so that the emulator's words can be
// held against a plain reference, and a device's against both. One warp reads `in`, 32 bits or more
// for each lane, and writes `out`.
#pragma once

#include <cstdint>

#include "memory/cuda_kernel.h"

namespace bulkhead::cuda {

struct ProbeParameters {
  const uint32_t* in = nullptr;
  uint32_t* out = nullptr;
};
using Probe = CudaKernelOf<ProbeParameters>;

Probe ShuffleProbe();     // out[lane] = in of lane (7 lane) % 32
Probe ShuffleXorProbe();  // out[lane] = in of lane ^ 5
Probe BallotProbe();      // out[2 lane]: the lanes whose in is odd; then how many
// in: four 8x8 tiles of 16 bits, row by row; out[4 lane + tile]
Probe LoadTilesProbe();
Probe LoadTilesTransposedProbe();
Probe TransposeTileProbe();  // in, out: one word of a lane
// in[10 lane]: four of a, two of b, four f32 of c; out[4 lane]: c
Probe MultiplyBf16Probe();
Probe MultiplyF16Probe();
// in: 64 words; out: 128 words, in copied aside with 16 bytes of zeroes after each 16
Probe CopyProbe();
// in[2 lane]: two f32; out[2 lane]: their pairs in bf16 and f16
Probe PairProbe();
// in[lane]: two numbers of 16 bits; out[4 lane]: both of them, read as bf16 and as f16
Probe WidenProbe();
Probe SelectBytesProbe();  // in[3 lane]: a, b, selector
// in[3 lane]: a, b, c; out[2 lane]: AndXor and FmaBf16Pairs of them
Probe BitsAndSumsProbe();
Probe Exp2Probe();        // f32
Probe LoadStreamProbe();  // in, out: four words of a lane
// in, out: 256 words of a block of 256 threads; out[i] = in[255 - i] through shared memory
Probe SyncBlockProbe();
// in: 256 words of a block of 256 threads. out[i] = the odd ones + 1000 x the even ones + 10^6 x
// (all
// + the counter that gave the odd ones their places); out[256 ...]: the odd ones in any order
Probe CountProbe();
Probe BitsOfF32Probe();  // in, out: f32

}  // namespace bulkhead::cuda
