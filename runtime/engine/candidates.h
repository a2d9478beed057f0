// Which tokens can be drawn where the logits are, from the likeliest ids of every rank's columns
// instead of whole rows. A question of what was asked for, never of the logits: whoever plans a
// step answers it before the step runs.
#pragma once

#include "base/token_sampling.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// Whether the likeliest ids decide what `row` draws: it is greedy or keeps its top_k, and with the
// ids that are banned, which may all be among the likeliest, that is no more than kCandidates.
// min_p and top_p only drop from those. Without a top_k, or with log probabilities, every logit
// counts. A step that also hands out prompt logits of the sequence has its logits on the host
// anyway: it draws there, whatever this says.
bool SamplesFromCandidates(const SampleRow& row);

// How a device draws such a row of the sequence in `slot`; its banned ids begin at `banned_begin`
// of an array.
TokenSampling TokenSamplingOf(const SampleRow& row, int slot, int banned_begin);

// What the device drew for it, or why there is nothing: as the Sampler says it.
absl::StatusOr<GeneratedToken> SampledToken(int32_t drawn, const SampleRow& row);

}  // namespace bulkhead
