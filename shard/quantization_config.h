// Reads `quantization_config` of a config.json.
#pragma once

#include "shard/config_fields.h"
#include "shard/model_config.h"

namespace bulkhead {

// UNIMPLEMENTED naming the field for whatever else there is; kNone where there is no such field.
QuantizationConfig ReadQuantizationConfig(ConfigFields& fields);

}  // namespace bulkhead
