// Rotary position embeddings out of config.json, in both spellings: rope_theta and rope_scaling
// {type | rope_type}, or rope_parameters with everything in it.
#pragma once

#include <string>
#include <vector>

#include "shard/config_fields.h"
#include "shard/model_config.h"

namespace bulkhead {

// Errors go to `fields`; unknown fields of the nested object are appended to `unknown`.
RopeConfig ReadRopeConfig(ConfigFields& fields, std::vector<std::string>& unknown);

}  // namespace bulkhead
