// Which rows can be sampled on the device: from the top candidates of every rank's columns, or from
// whole rows of logits. Depends on the request only, never on the logits, so it is known when the
// step is planned.
#pragma once

#include "base/token_sampling.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// Whether the top candidates suffice to sample `row`: it is greedy or has a top_k, and top_k plus
// the number of banned ids (all may be among the top) is at most kCandidates. min_p and top_p only
// drop candidates.
bool SamplesFromCandidates(const SampleRow& row);

// Whether rank 0's device can sample `row` from all of its logits: there is no top_k. The host
// samples rows with log probabilities, changes to logits (penalties, logit_bias, bad_words,
// allowed_token_ids, structured output) or a larger top_k. A step that also outputs prompt logits
// of the sequence has its logits on the host anyway and samples there regardless.
bool SamplesFromRow(const SampleRow& row);

// What a sequence of the plan is sampled from; kRow and kCandidates: on the device.
enum class SampleSource { kHost, kRow, kCandidates };
SampleSource SampleSourceOf(const internal::StepPlan& plan, int seq_index);

// The device's sampling parameters for a row of the sequence in `slot`; its banned ids start at
// index `banned_begin` of an array.
TokenSampling TokenSamplingOf(const SampleRow& row, int slot, int banned_begin);

// The token sampled by the device, or the error that the Sampler would return.
absl::StatusOr<GeneratedToken> SampledToken(int32_t id, const SampleRow& row);

}  // namespace bulkhead
