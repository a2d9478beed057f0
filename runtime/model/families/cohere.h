// Shared by Cohere's generations.
#pragma once

#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {

void ReadCohereFields(ConfigFields& fields, ModelConfig& config);

// One norm, the input of both attention and MLP.
inline constexpr LayerNames kCohereLayer = {.mlp_norm = nullptr};

}  // namespace bulkhead::families
