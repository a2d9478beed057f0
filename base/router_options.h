// How the router of a mixture of experts (MoE) chooses a token's experts and weighs them.
#pragma once

namespace bulkhead {

enum class RouterScoring { kSoftmax, kSigmoid };

struct RouterOptions {
  RouterScoring scoring = RouterScoring::kSoftmax;  // over all experts
  bool normalizes = false;  // weights are scores divided by their sum over the chosen, else scores
  float scale = 1;          // weights are multiplied by it
  // Experts are chosen only from the best groups; a group's score is its best experts' sum.
  int num_groups = 1;
  int num_chosen_groups = 1;
  int experts_per_group_score = 1;

  bool operator==(const RouterOptions&) const = default;
};

// Bounds of what a config may state, and what kernels keep on the stack.
inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxExpertsPerToken = 64;

}  // namespace bulkhead
