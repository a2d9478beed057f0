// Integer arithmetic for sizes and grids. Plain C++: .cu files include it.
#pragma once

#include <stdint.h>

namespace bulkhead {

// ceil(n / d); n >= 0, d > 0.
constexpr int64_t CeilDiv(int64_t n, int64_t d) { return (n + d - 1) / d; }
// The smallest multiple of `granule` that is >= n; n >= 0, granule > 0.
constexpr int64_t RoundUp(int64_t n, int64_t granule) { return CeilDiv(n, granule) * granule; }

}  // namespace bulkhead
