// Shared by DeepSeek's generations with latent attention (MLA).
#pragma once

#include "runtime/model/family.h"
#include "shard/decoder_fields.h"

namespace bulkhead::families {

// Defaults of fields that the file does not have.
struct DeepseekDefaults {
  int max_position_embeddings = 2048;
  int shared_experts = 2;
  double routed_scaling_factor = 1;
  int first_k_dense_replace = 0;
};
// Sizes, experts and which layers have them; everything except how the router chooses.
void ReadDeepseekFields(ConfigFields& fields, const DeepseekDefaults& defaults,
                        ModelConfig& config);
// V3's fields, also used by Kimi K2.
void ReadDeepseekV3Fields(ConfigFields& fields, ModelConfig& config);

Family DeepseekLike(const char* architecture, const char* model_type,
                    void (*read_config)(ConfigFields& fields, ModelConfig& config));

}  // namespace bulkhead::families
