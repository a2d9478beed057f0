// The router's kernel: one token's scores of all experts.
#pragma once

#include <stdint.h>

#include "base/router_options.h"
#include "kernels/simd/per_isa.h"

namespace bulkhead {

// kSoftmax: scores = exp(logits - their largest), and returns their sum in 16 fixed lanes.
// kSigmoid: scores = 1 / (1 + exp(-logits)), and returns 1.
BH_PER_ISA(float ScoreExperts(RouterScoring scoring, const float* logits, int64_t num_experts,
                              float* scores))

}  // namespace bulkhead
