// Policy for config fields that no number is read from: harmless ones are ignored; those that
// change the arithmetic are refused at every value except the neutral one.
#pragma once

#include <string>
#include <vector>

#include "shard/config_fields.h"

namespace bulkhead {

// config.json: marks the harmless fields as known and fails on unsupported ones; fields that the
// family has read are left to it.
void ApplyConfigFieldPolicy(ConfigFields& fields);

// Fields beside text_config in a multimodal config: marks the harmless ones as known.
void ApplyOuterFieldPolicy(ConfigFields& fields);

// The same for generation_config.json. Returns a warning for each known field whose value is not
// applied.
std::vector<std::string> ApplyGenerationFieldPolicy(ConfigFields& fields);

}  // namespace bulkhead
