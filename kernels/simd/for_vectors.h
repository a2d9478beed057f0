// Splits a row into vectors; the last may be short.
#pragma once

#include "simd.h"

namespace bulkhead::BH_ISA {

struct WholeVector {
  BH_INLINE F32x16 Load(const float* p) const { return BH_ISA::Load(p); }
  BH_INLINE void Store(float* p, F32x16 a) const { BH_ISA::Store(p, a); }
  BH_INLINE F32x16 OrElse(F32x16 a, F32x16) const { return a; }
};
struct ShortVector {
  int n;
  BH_INLINE F32x16 Load(const float* p) const { return LoadN(p, n); }
  BH_INLINE void Store(float* p, F32x16 a) const { StoreN(p, a, n); }
  // a in the valid lanes, b in the others.
  BH_INLINE F32x16 OrElse(F32x16 a, F32x16 b) const { return Select(FirstN(n), a, b); }
};

// Prefetches a row's numbers for later: hardware prefetching stays within a page.
BH_INLINE void PrefetchNumbers(const float* row, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) Prefetch(row + i);
}

// visit(first element, WholeVector or ShortVector) over `size` elements, ascending.
template <typename Visit>
BH_INLINE void ForVectors(int64_t size, const Visit& visit) {
  const int64_t whole = size / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) visit(i, WholeVector());
  if (whole < size) visit(whole, ShortVector{static_cast<int>(size - whole)});
}

}  // namespace bulkhead::BH_ISA
