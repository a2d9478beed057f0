// What DeepSeek's generations with latent attention (MLA) share.
#pragma once

#include "runtime/model/family.h"
#include "shard/decoder_fields.h"

namespace bulkhead::families {

// Sizes, experts and which layers have them; all but how the router chooses.
void ReadDeepseekFields(ConfigFields& fields, int default_shared_experts, ModelConfig& config);
// V3's fields; Kimi K2 has them, too.
void ReadDeepseekV3Fields(ConfigFields& fields, ModelConfig& config);

Family DeepseekLike(const char* architecture, const char* model_type,
                    void (*read_config)(ConfigFields& fields, ModelConfig& config));

}  // namespace bulkhead::families
