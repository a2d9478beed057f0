#include "runtime/engine/candidates.h"

namespace bulkhead {

bool DrawsFromCandidates(const SampleRow& row) {
  if (row.num_logprobs.has_value()) return false;
  const SamplingParams& sampling = row.sampling;
  if (sampling.temperature > 0 && sampling.top_k < 1) return false;
  const int64_t kept = sampling.temperature > 0 ? sampling.top_k : 1;
  return kept + static_cast<int64_t>(row.banned.size()) <= kCandidates;
}

}  // namespace bulkhead
