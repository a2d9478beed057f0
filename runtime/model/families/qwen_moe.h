// Shared by Qwen's mixtures of experts.
#pragma once

#include "shard/decoder_fields.h"

namespace bulkhead::families {

// Experts in every decoder_sparse_step-th layer that mlp_only_layers does not list, weighted by a
// softmax over all, which norm_topk_prob divides by the sum of the chosen ones.
void ReadQwenMoe(ConfigFields& fields, ModelConfig& config);

}  // namespace bulkhead::families
