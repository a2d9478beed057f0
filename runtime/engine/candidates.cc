#include "runtime/engine/candidates.h"

#include "base/check.h"
#include "base/portable_math.h"
#include "runtime/engine/sampler.h"

namespace bulkhead {

bool SamplesFromCandidates(const SampleRow& row) {
  if (row.num_logprobs.has_value() || row.logits != nullptr) return false;
  const SamplingParams& sampling = row.sampling;
  if (sampling.temperature > 0 && sampling.top_k < 1) return false;
  const int64_t kept = sampling.temperature > 0 ? sampling.top_k : 1;
  return kept + static_cast<int64_t>(row.banned.size()) <= kCandidates;
}

TokenSampling TokenSamplingOf(const SampleRow& row, int slot, int banned_begin) {
  BH_CHECK(SamplesFromCandidates(row));
  TokenSampling parameters;
  parameters.slot = slot;
  parameters.banned_begin = banned_begin;
  parameters.banned_count = static_cast<int32_t>(row.banned.size());
  const SamplingParams& sampling = row.sampling;
  if (sampling.temperature > 0) {
    parameters.uniform = UniformOf(sampling.seed, 0, static_cast<uint64_t>(row.position));
    parameters.per_temperature = 1.0 / double{sampling.temperature};
    parameters.min_p = sampling.min_p;
    parameters.top_p = sampling.top_p;
    parameters.top_k = sampling.top_k;
  }
  return parameters;
}

absl::StatusOr<GeneratedToken> SampledToken(int32_t id, const SampleRow& row) {
  if (id == kNotFinite) return NotFiniteError(row);
  if (id == kNothingToSample) return NothingToSampleError(row);
  BH_CHECK(id >= 0);
  return GeneratedToken{.id = id, .logprob = {}, .top = {}};
}

}  // namespace bulkhead
