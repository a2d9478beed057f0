// The single order in which partial sums of several ranks are added.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace bulkhead {

// sum[i] = the tree over partial sums[..][i] for i in [begin, end): ranks [0, n) are [0, ceil(n/2))
// plus the rest, recursively, so ((0+1)+2)+(3+4) for five. Bit-identical for any range. `sum` must
// not alias a partial sum. n >= 1. Memory-bound: reads 4 n bytes and writes 4 per element.
void TreeSum(absl::Span<const float* const> partial_sums, int64_t begin, int64_t end, float* sum);

}  // namespace bulkhead
