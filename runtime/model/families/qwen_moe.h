// What Qwen's mixtures of experts share.
#pragma once

#include "shard/decoder_fields.h"

namespace bulkhead::families {

// Experts in every decoder_sparse_step-th layer that mlp_only_layers does not name, weighed by a
// softmax over all, which norm_topk_prob divides by the sum of the chosen.
void ReadQwenMoe(ConfigFields& fields, ModelConfig& config);

}  // namespace bulkhead::families
