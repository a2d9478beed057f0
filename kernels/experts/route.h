// The decisions of a token's router, given its scores.
#pragma once

#include <cstdint>

#include "base/router_options.h"
#include "kernels/backend.h"

namespace bulkhead {

// Added to the sum that weights are divided by: a sigmoid's scores may all be 0.
inline constexpr float kMinScoreSum = 1e-20F;

// The `count` experts with the largest `choice` [num_experts] in the best groups, ties to the
// lowest id: into experts [count], ascending. With a NaN, any experts.
void ChooseExperts(const float* choice, int num_experts, const RouterOptions& options, int count,
                   int32_t* experts);

// Sets expert_begin, pair_token and pair_weight from experts and weights of `num_tokens` tokens.
void SortPairs(int64_t num_tokens, const ExpertRouting& routing);

}  // namespace bulkhead
