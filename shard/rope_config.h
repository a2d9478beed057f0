// Reads rotary position embeddings from config.json, in both spellings: rope_theta and rope_scaling
// {type | rope_type}, or rope_parameters with everything in it.
#pragma once

#include <string>
#include <vector>

#include "shard/config_fields.h"
#include "shard/family_spec.h"
#include "shard/model_config.h"

namespace bulkhead {

// Sets config.rope and, for layers with a window, config.window_rope. Errors go to `fields`;
// unknown fields of the nested objects are appended to `unknown`.
void ReadRope(ConfigFields& fields, const RopeDefaults& defaults, ModelConfig& config,
              std::vector<std::string>& unknown);

}  // namespace bulkhead
