// What DeepSeek's generations with latent attention (MLA) share.
#pragma once

#include "runtime/model/family.h"
#include "shard/decoder_fields.h"

namespace bulkhead::families {

// What the fields mean where the file is silent.
struct DeepseekDefaults {
  int max_position_embeddings = 2048;
  int shared_experts = 2;
  double routed_scaling_factor = 1;
  int first_k_dense_replace = 0;
};
// Sizes, experts and which layers have them; all but how the router chooses.
void ReadDeepseekFields(ConfigFields& fields, const DeepseekDefaults& defaults,
                        ModelConfig& config);
// V3's fields, which Kimi K2 also has.
void ReadDeepseekV3Fields(ConfigFields& fields, ModelConfig& config);

Family DeepseekLike(const char* architecture, const char* model_type,
                    void (*read_config)(ConfigFields& fields, ModelConfig& config));

}  // namespace bulkhead::families
