// What Cohere's generations share.
#pragma once

#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {

void ReadCohereFields(ConfigFields& fields, ModelConfig& config);

// One norm, of what attention and the MLP both read.
inline constexpr LayerNames kCohereLayer = {.mlp_norm = nullptr};

}  // namespace bulkhead::families
