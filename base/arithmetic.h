// Whole-number arithmetic for sizes and grids. Plain: .cu files include this.
#pragma once

#include <stdint.h>

namespace bulkhead {

// n / d rounded up; n >= 0, d > 0.
constexpr int64_t CeilDiv(int64_t n, int64_t d) { return (n + d - 1) / d; }
// The least multiple of `granule` that is not below n; n >= 0, granule > 0.
constexpr int64_t RoundUp(int64_t n, int64_t granule) { return CeilDiv(n, granule) * granule; }

}  // namespace bulkhead
