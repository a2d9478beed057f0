// What is known about config fields that no number of ours comes from: harmless ones are ignored,
// those that change the arithmetic are refused at every value but the neutral one.
#pragma once

#include <string>
#include <vector>

#include "shard/config_fields.h"

namespace bulkhead {

// config.json: marks the harmless fields as known and fails on what we do not compute: the fields
// that the family has read are left to it.
void ApplyConfigFieldPolicy(ConfigFields& fields);

// What a multimodal checkpoint's config has beside text_config: marks the harmless fields as known.
void ApplyOuterFieldPolicy(ConfigFields& fields);

// generation_config.json: likewise. Returns a warning for each known field that is not applied at
// its value.
std::vector<std::string> ApplyGenerationFieldPolicy(ConfigFields& fields);

}  // namespace bulkhead
