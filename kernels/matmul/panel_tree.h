// What the product kernels share: the columns of a panel that exist, the tree in which slices join,
// and what is fetched. Compiled per instruction set; after simd.h.
#pragma once

#include "simd.h"

namespace bulkhead::BH_ISA {

// Where a tile fetches ahead, and how far that moves per k, or per word of four.
struct Ahead {
  const char* at;
  int64_t step;
};

// Of `columns` in a panel, those in vector `vector`.
BH_INLINE int LanesFrom(int columns, int vector) {
  const int lanes = columns - vector * kLanes;
  return lanes < 0 ? 0 : lanes > kLanes ? kLanes : lanes;
}

// How many left subtrees are complete once slice `slice` is: its trailing one bits.
BH_INLINE int JoinsAfter(int slice) {
  int joins = 0;
  for (; slice & 1; slice >>= 1) ++joins;
  return joins;
}

}  // namespace bulkhead::BH_ISA
