// The k most likely tokens of a row, found by the maxima of groups of ids (FindMaxima) or by a
// histogram, without sorting the row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "runtime/engine/request.h"

namespace bulkhead {

// The `k` most likely ids that are not -inf, at most kHeapMax, in any order, into `ids` [k];
// returns how many. `scratch` [V].
int64_t SelectTopK(absl::Span<const float> logits, absl::Span<const float> maxima, int64_t k,
                   TokenId* ids, TokenId* scratch);

// Kept are ids with a larger logit, and those with an equal one that are less than `equal_end`.
struct LogitCut {
  float least = 0;
  int64_t equal_end = 0;
};
// Of the `k` most likely, 0 < k < V. `scratch` [V].
LogitCut CutBehindTopK(absl::Span<const float> logits, int64_t k, double* scratch);

}  // namespace bulkhead
