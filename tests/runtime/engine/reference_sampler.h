// The definition of what is sampled from a row (runtime/engine/sampler.h), in plain loops over the
// whole row: the oracle of the Sampler's bits.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// With log probabilities, rank and top n, if the row wants them.
absl::StatusOr<GeneratedToken> ReferenceSample(std::vector<float> logits, const SampleRow& row);

// Whether two samples are the same, to the bit.
bool SameSample(const absl::StatusOr<GeneratedToken>& a, const absl::StatusOr<GeneratedToken>& b);

// A row of a kind that makes sampling hard, by `seed`: ties, logits that are -inf, all equal, far
// apart or close together; now and then NaN or +inf.
std::vector<float> HardRow(uint64_t seed, int64_t vocab_size);
// How it is sampled: any temperature, filters, bans and log probabilities.
SampleRow HardSettings(uint64_t seed, int64_t vocab_size);

}  // namespace bulkhead
