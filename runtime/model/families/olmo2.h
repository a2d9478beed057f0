// Shared by OLMo's generations from the second on.
#pragma once

#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {

Family olmo2();

void ReadOlmo2Fields(ConfigFields& fields, ModelConfig& config);

}  // namespace bulkhead::families
