// Shared samples: on CPUs each rank of a group samples some of a step's rows of logits. The plan
// says how, the rank that samples a row gets all of it, and rank 0 what was sampled.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

inline constexpr int kMaxSharedLogprobs = 20;
inline constexpr int kMaxSharedBanned = 16;

// Puts into the plan how the step's rows are sampled, of those that any rank may sample: not those
// whose logits the request changes, as rank 0 alone knows how, nor those of sequences with prompt
// logits, which rank 0 needs whole, nor those with more log probabilities or bans, which every step
// would carry to every rank.
void AddSharedSamples(Step& step);

// The plan's, without `drafted`, by sequence and position. INTERNAL: they are not rows with logits
// of the plan, or not how a row can be sampled.
absl::StatusOr<std::vector<SampleRow>> SharedSamplesOf(const internal::StepPlan& plan);

// Divides a tile's rows: rank_of_row[i] is the rank that samples row i. Rows with the same
// `group_of_row` follow each other and stay together; rank 0 gets those of group -1, and no other
// rank more than `most`.
void DivideRows(absl::Span<const int> group_of_row, int num_ranks, int64_t most,
                std::vector<int>& rank_of_row);

// What was sampled from a row, as floats whose bits are copied and never computed with.
inline constexpr int64_t kMaxSampleFloats = 4 + 2 * int64_t{kMaxSharedLogprobs};
int64_t SampleFloats(absl::Span<const SampleRow> shared);  // for each row of these
void PackSample(const absl::StatusOr<GeneratedToken>& sample, const SampleRow& row,
                absl::Span<float> floats);
absl::StatusOr<GeneratedToken> UnpackSample(absl::Span<const float> floats, const SampleRow& row);

}  // namespace bulkhead
