// What Granite's dense and MoE models share.
#pragma once

#include "shard/decoder_fields.h"

namespace bulkhead::families {

void ReadGraniteFields(ConfigFields& fields, ModelConfig& config);

}  // namespace bulkhead::families
