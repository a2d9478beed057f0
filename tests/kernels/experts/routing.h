// Where a router's decisions go, for the tests of experts.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace bulkhead {

// Memory of a routing of `num_tokens` tokens.
struct Routing {
  Routing(int64_t num_tokens, int num_experts, int k)
      : experts(num_tokens * k),
        weights(num_tokens * k),
        expert_begin(num_experts + 1),
        pair_token(num_tokens * k),
        pair_weight(num_tokens * k),
        view{num_experts,         k,
             experts.data(),      weights.data(),
             expert_begin.data(), pair_token.data(),
             pair_weight.data()} {}

  std::vector<int32_t> experts;
  std::vector<float> weights;
  std::vector<int32_t> expert_begin;
  std::vector<int32_t> pair_token;
  std::vector<float> pair_weight;
  ExpertRouting view;
};

}  // namespace bulkhead
