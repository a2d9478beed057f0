// Shared by Granite's dense and MoE models.
#pragma once

#include "shard/decoder_fields.h"

namespace bulkhead::families {

void ReadGraniteFields(ConfigFields& fields, ModelConfig& config);

}  // namespace bulkhead::families
