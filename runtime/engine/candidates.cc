#include "runtime/engine/candidates.h"

#include <iterator>

#include "base/check.h"
#include "base/portable_math.h"
#include "runtime/engine/sampler.h"

namespace bulkhead {

namespace {

bool NeedsHost(const SampleRow& row) {
  return row.num_logprobs.has_value() || row.logits != nullptr;
}

}  // namespace

bool SamplesFromCandidates(const SampleRow& row) {
  if (NeedsHost(row)) return false;
  const SamplingParams& sampling = row.sampling;
  if (sampling.temperature > 0 && sampling.top_k < 1) return false;
  const int64_t kept = sampling.temperature > 0 ? sampling.top_k : 1;
  return kept + static_cast<int64_t>(row.banned.size()) <= kCandidates;
}

bool SamplesFromRow(const SampleRow& row) {
  return !NeedsHost(row) && row.sampling.temperature > 0 && row.sampling.top_k < 1 &&
         std::ssize(row.banned) <= kCandidates;
}

SampleSource SampleSourceOf(const internal::StepPlan& plan, int seq_index) {
  const auto is_set = [seq_index](const auto& flags) {
    return seq_index < flags.size() && flags[seq_index];
  };
  if (is_set(plan.from_candidates())) return SampleSource::kCandidates;
  return is_set(plan.from_row()) ? SampleSource::kRow : SampleSource::kHost;
}

TokenSampling TokenSamplingOf(const SampleRow& row, int slot, int banned_begin) {
  BH_CHECK(SamplesFromCandidates(row) || SamplesFromRow(row));
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
