// A backend's workspace for steps of experts, for the tests of their ops.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/backend.h"
#include "memory/device.h"

namespace bulkhead {

inline constexpr int kMaxTokens = 520;

class ExpertWorkspace {
 public:
  ExpertWorkspace(Backend& backend, int num_experts, int experts_per_token, int64_t max_inputs) {
    const StepLimits limits{.max_num_batched_tokens = kMaxTokens,
                            .max_num_seqs = 1,
                            .max_model_len = 16,
                            .max_inputs = max_inputs,
                            .num_experts = num_experts,
                            .experts_per_token = experts_per_token,
                            .max_expert_inputs = max_inputs};
    const HeadLayout heads{1, 1, 16, &kHead};
    const int64_t bytes = std::max<int64_t>(64, backend.WorkspaceBytes(limits, heads));
    memory_ = std::move(backend.device().Allocate(bytes)).value();
    backend.SetWorkspace(memory_.data(), limits, heads);
  }

 private:
  static constexpr int32_t kHead = 0;
  Buffer memory_;
};

}  // namespace bulkhead
