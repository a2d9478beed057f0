#include "runtime/engine/candidates.h"

#include "base/check.h"
#include "runtime/engine/portable_math.h"
#include "runtime/engine/sampler.h"

namespace bulkhead {

bool SamplesFromCandidates(const SampleRow& row) {
  if (row.num_logprobs.has_value()) return false;
  const SamplingParams& sampling = row.sampling;
  if (sampling.temperature > 0 && sampling.top_k < 1) return false;
  const int64_t kept = sampling.temperature > 0 ? sampling.top_k : 1;
  return kept + static_cast<int64_t>(row.banned.size()) <= kCandidates;
}

TokenSampling TokenSamplingOf(const SampleRow& row, int slot, int banned_begin) {
  BH_CHECK(SamplesFromCandidates(row));
  TokenSampling draw;
  draw.slot = slot;
  draw.banned_begin = banned_begin;
  draw.banned_count = static_cast<int32_t>(row.banned.size());
  const SamplingParams& sampling = row.sampling;
  if (sampling.temperature > 0) {
    draw.uniform = UniformOf(sampling.seed, 0, static_cast<uint64_t>(row.position));
    draw.per_temperature = 1.0 / double{sampling.temperature};
    draw.min_p = sampling.min_p;
    draw.top_p = sampling.top_p;
    draw.top_k = sampling.top_k;
  }
  return draw;
}

absl::StatusOr<GeneratedToken> SampledToken(int32_t drawn, const SampleRow& row) {
  if (drawn == kNotFinite) return NotFiniteError(row);
  if (drawn == kNothingToSample) return NothingToSampleError(row);
  BH_CHECK(drawn >= 0);
  return GeneratedToken{.id = drawn, .logprob = {}, .top = {}};
}

}  // namespace bulkhead
