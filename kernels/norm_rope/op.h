// The kernel that rotates one head.
#pragma once

#include "kernels/simd/per_isa.h"

namespace bulkhead {

// Rotates `rotary_dim` columns of one head in place: pairs are adjacent, or `distance` columns
// apart; rope [rotary_dim]: cosines, then sines.
BH_PER_ISA(void Rotate(const float* rope, int rotary_dim, bool interleaved, int distance, float* x))

}  // namespace bulkhead
