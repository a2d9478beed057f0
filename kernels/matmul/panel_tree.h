// Shared by the product kernels: the valid columns of a panel, the tree in which slices join, and
// prefetching. Compiled per instruction set; include after simd.h.
#pragma once

#include "simd.h"

namespace bulkhead::BH_ISA {

// Where a tile prefetches, and how far that moves per k, or per word of four.
struct Ahead {
  const char* at;
  int64_t step;
};

// The number of a panel's `columns` that are in vector `vector`.
BH_INLINE int LanesFrom(int columns, int vector) {
  const int lanes = columns - vector * kLanes;
  return lanes < 0 ? 0 : lanes > kLanes ? kLanes : lanes;
}

// Number of left subtrees that slice `slice` completes: its trailing one bits.
BH_INLINE int JoinsAfter(int slice) {
  int joins = 0;
  for (; slice & 1; slice >>= 1) ++joins;
  return joins;
}

}  // namespace bulkhead::BH_ISA
