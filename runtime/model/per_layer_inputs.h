// Inputs of each layer (Gemma 4): besides its embedding a token has a row of a table for all
// layers, which is combined with a product of the embedding; after the MLP each layer adds a gated
// product of its part and multiplies the stream by a scalar. These products are replicated on every
// rank.
#pragma once

#include <vector>

#include "runtime/model/decoder.h"
#include "runtime/model/family.h"

namespace bulkhead::families {

// Rows of the table, the product and its norm, if config.per_layer_input_size is set.
void PerLayerModelTensors(const ModelConfig& config, TensorTable& table);
// Rows of a layer; the scalar's row is in every layer.
void PerLayerTensors(const ModelConfig& config, TensorTable& table);
std::vector<BufferRow> PerLayerBuffers(const ModelConfig& config);
// Family::begin: the inputs of all layers.
absl::Status BeginPerLayerInputs(Decoder& decoder);
// Called after the rest of the layer.
void AddPerLayerInput(Decoder& decoder);

}  // namespace bulkhead::families
