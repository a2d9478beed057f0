// The tile registers of AMX: 8 of them, each of up to 16 rows of up to 64 bytes. They belong to a
// thread; the process has requested them (kernels/cpu/isa.cc). simd/plainamx emulates the same
// functions. Intel's manual, "AMX": shapes that do not fit together are faults.
#pragma once

#include <stdint.h>

#include "kernels/simd/tile_shapes.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

// g++ 12's own intrinsics take register numbers only as literals.
// Sets shapes, and all tiles to zero.
BH_INLINE void ConfigureTiles(const TileShapes& shapes) {
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}
// Releases the tiles: their contents are lost, and no longer saved at thread switches.
BH_INLINE void ReleaseTiles() { asm volatile("tilerelease"); }
template <int kTile>
BH_INLINE void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// Rows `stride` bytes apart.
template <int kTile>
BH_INLINE void LoadTile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
// The same for data used once: it displaces less in L1.
template <int kTile>
BH_INLINE void LoadPassingTile(const void* from, int64_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
BH_INLINE void StoreTile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}
// sums [m][n] += the sum over k of inputs [m][k] and weights [k / 4][n][k % 4]: int32, wrapping, of
// signed bytes.
template <int kSums, int kInputs, int kWeights>
BH_INLINE void DotTiles() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kInputs), "i"(kWeights));
}
// sums [m][n] += the sum over k of inputs [m][2 k] and weights [k][2 n], a chain of fused
// multiply-adds from +0, plus the same of the odd ones: f32 sums of bf16, rounded to nearest even,
// with denormal inputs and results as 0, whatever MXCSR says.
template <int kSums, int kInputs, int kWeights>
BH_INLINE void DotBf16Tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0"
               :
               : "i"(kSums), "i"(kInputs), "i"(kWeights));
}

// Differences of the bytes of `a` and `b`, modulo 256.
BH_INLINE I32x16 SubBytes(I32x16 a, I32x16 b) { return {_mm512_sub_epi8(a.v, b.v)}; }

// Rounds 32 numbers to bf16, `a` first, to nearest even, with denormal inputs as 0. CPUs with
// amx_bf16 have this instruction; one vector would take as long.
BH_INLINE void StoreRounded(uint16_t* p, F32x16 a, F32x16 b) {
  __m512i rounded;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(rounded) : "v"(a.v), "v"(b.v));
  _mm512_storeu_si512(p, rounded);
}

}  // namespace bulkhead::BH_ISA
