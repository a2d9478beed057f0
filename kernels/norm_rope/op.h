// The kernel that turns one head.
#pragma once

#include "kernels/simd/per_isa.h"

namespace bulkhead {

// The first `rotary_dim` columns of one head, in place; rope [rotary_dim]: cosines, then sines.
BH_PER_ISA(void Rotate(const float* rope, int rotary_dim, bool interleaved, float* x))

}  // namespace bulkhead
