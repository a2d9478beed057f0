// The tile registers of AMX: 8 of them, each of up to 16 rows of up to 64 bytes. They belong to a
// thread; the process has asked for them (kernels/cpu/isa.cc). simd/plainamx emulates the same
// words. Intel's manual, "AMX": shapes that do not fit together are faults.
#pragma once

#include <stdint.h>

#include "kernels/simd/tile_shapes.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

// g++ 12's own words take register numbers as text alone.
// Sets shapes, and all tiles to zero.
BH_INLINE void ConfigureTiles(const TileShapes& shapes) {
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}
// Gives the tiles back: their contents are lost, and no longer saved when threads are switched.
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
template <int kTile>
BH_INLINE void StoreTile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}
// sums [m][n] += the sum over k of inputs [m][k] and weights [k / 4][n][k % 4]: int32, wrapping, of
// signed bytes and unsigned ones.
template <int kSums, int kInputs, int kWeights>
BH_INLINE void DotTiles() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kInputs), "i"(kWeights));
}

}  // namespace bulkhead::BH_ISA
