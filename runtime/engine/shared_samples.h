// Shared samples: on CPUs each rank of a group samples some of a step's rows of logits. The plan
// has the sampling parameters; the sampling rank gets the whole row, rank 0 the samples.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

inline constexpr int kMaxSharedLogprobs = 20;
inline constexpr int kMaxSharedBanned = 16;

// Adds sampling parameters to the plan for rows that any rank may sample. Excluded: rows whose
// logits the request changes (only rank 0 knows how), rows of sequences with prompt logits (rank 0
// needs them whole), and rows with more log probabilities or bans, which each step would send to
// all ranks.
void AddSharedSamples(Step& step);

// The plan's shared samples, without `drafted`, by sequence and position. INTERNAL: a row without
// logits in the plan, or invalid sampling parameters.
absl::StatusOr<std::vector<SampleRow>> SharedSamplesOf(const internal::StepPlan& plan);

// Divides a tile's rows: rank_of_row[i] is the rank that samples row i. Rows with the same
// `group_of_row` are consecutive and stay together; rank 0 gets group -1, other ranks at most
// `most` rows each.
void DivideRows(absl::Span<const int> group_of_row, int num_ranks, int64_t most,
                std::vector<int>& rank_of_row);

// A row's sample as floats, whose bits are only copied, never computed with.
inline constexpr int64_t kMaxSampleFloats = 4 + 2 * int64_t{kMaxSharedLogprobs};
int64_t SampleFloats(absl::Span<const SampleRow> shared);  // per row of `shared`
void PackSample(const absl::StatusOr<GeneratedToken>& sample, const SampleRow& row,
                absl::Span<float> floats);
absl::StatusOr<GeneratedToken> UnpackSample(absl::Span<const float> floats, const SampleRow& row);

}  // namespace bulkhead
