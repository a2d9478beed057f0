// Which rows can be sampled on the device: from the top candidates of every rank's columns, or from
// whole rows of logits. Depends on the request only, never on the logits, so it is known when the
// step is planned.
#pragma once

#include "base/token_sampling.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// Whether the top candidates suffice to sample `row`: it is greedy or has a top_k, and top_k plus
// the banned ids, which may all be among the top, is at most kCandidates. min_p and top_p only drop
// from those.
bool SamplesFromCandidates(const SampleRow& row);

// Whether rank 0's device can sample `row` from all of its logits: there is no top_k. Log
// probabilities, changes to logits (penalties, logit_bias, bad_words,
// allowed_token_ids, structured output) and a larger top_k are the host's. A
// step that also outputs prompt logits of the sequence has its logits on the host anyway and
// samples there regardless.
bool SamplesFromRow(const SampleRow& row);

// From what a sequence of the plan is sampled where the device can.
enum class SampleSource { kHost, kRow, kCandidates };
SampleSource SampleSourceOf(const internal::StepPlan& plan, int seq_index);

// The device's sampling parameters for such a row of the sequence in `slot`; its banned ids start
// at `banned_begin` of an array.
TokenSampling TokenSamplingOf(const SampleRow& row, int slot, int banned_begin);

// The token sampled by the device, or the error that the Sampler would return.
absl::StatusOr<GeneratedToken> SampledToken(int32_t id, const SampleRow& row);

}  // namespace bulkhead
