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

// Keeps ids with a logit above `least`, and ids below `equal_end` with a logit equal to it.
struct LogitCut {
  float least = 0;
  int64_t equal_end = 0;
};
// The cut that keeps the `k` most likely ids, 0 < k < V. `scratch` [V].
LogitCut CutBehindTopK(absl::Span<const float> logits, int64_t k, double* scratch);

}  // namespace bulkhead
