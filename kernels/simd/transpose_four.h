// Transposes four by four numbers. Compiled per instruction set.
#pragma once

#include "simd.h"

namespace bulkhead::BH_ISA {

using Four = float __attribute__((vector_size(16)));

// Four k's of four rows: writes the rows side by side to `to`, k's `to_stride` apart.
BH_INLINE void TransposeFour(const float* const* from, int64_t at, float* to, int64_t to_stride) {
  Four row[4];
  for (int r = 0; r < 4; ++r) __builtin_memcpy(&row[r], from[r] + at, sizeof(Four));
  const Four low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const Four low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const Four high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const Four high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  const Four k[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                     __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                     __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                     __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) __builtin_memcpy(to + i * to_stride, &k[i], sizeof(Four));
}

}  // namespace bulkhead::BH_ISA
