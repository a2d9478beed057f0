// Inputs of each layer (Gemma 4): beside the embedding a token has a row of a table for all layers,
// which is joined with a product of its embedding; after the MLP each layer adds a gated product
// of its part, and multiplies the stream by a number. Every rank has these products whole.
#pragma once

#include <vector>

#include "runtime/model/decoder.h"
#include "runtime/model/family.h"

namespace bulkhead::families {

// The table, the product and its norm; where config.per_layer_input_size is set.
void PerLayerModelTensors(const ModelConfig& config, TensorTable& table);
// Of a layer; the number in all.
void PerLayerTensors(const ModelConfig& config, TensorTable& table);
std::vector<BufferRow> PerLayerBuffers(const ModelConfig& config);
// Family::begin: the inputs of all layers.
absl::Status BeginPerLayerInputs(Decoder& decoder);
// Behind the rest of the layer.
void AddPerLayerInput(Decoder& decoder);

}  // namespace bulkhead::families
