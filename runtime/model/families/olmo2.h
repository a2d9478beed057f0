// What OLMo's generations from the second on share.
#pragma once

#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {

Family olmo2();

void ReadOlmo2Fields(ConfigFields& fields, ModelConfig& config);

}  // namespace bulkhead::families
