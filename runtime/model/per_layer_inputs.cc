#include "runtime/model/per_layer_inputs.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace bulkhead::families {
namespace {

// After the slots of the rest of the layer (decoder_layer.cc, moe_layer.cc, mla_layer.cc).
enum Weights { kGate = 48, kProjection, kNorm, kScalar };
enum Buffers { kGateAndInput = 32, kGated, kSum };

float Root(double x) { return static_cast<float>(std::sqrt(x)); }

}  // namespace

void PerLayerModelTensors(const ModelConfig& c, TensorTable& t) {
  if (c.per_layer_input_size == 0) return;
  const int64_t cols = int64_t{c.num_hidden_layers} * c.per_layer_input_size;
  const auto name = [&](const char* of) { return absl::StrCat(c.family->model_prefix, of); };
  t.VocabParallel(kPerLayerEmbedding, name("embed_tokens_per_layer"), c.vocab_size, cols);
  t.WholeMatrix(kPerLayerProjection, name("per_layer_model_projection"), cols, c.hidden_size);
  t.Norm(kPerLayerNorm, name("per_layer_projection_norm"), c.per_layer_input_size);
}

void PerLayerTensors(const ModelConfig& c, TensorTable& t) {
  t.Vector(kScalar, "layer_scalar", 1, Split::kWhole);
  const int64_t cols = c.per_layer_input_size;
  if (cols == 0) return;
  t.ColumnParallel(kGate, "per_layer_input_gate", cols, c.hidden_size, Split::kWhole, false);
  t.ColumnParallel(kProjection, "per_layer_projection", c.hidden_size, cols, Split::kWhole, false);
  t.Norm(kNorm, "post_per_layer_input_norm", c.hidden_size);
}

std::vector<BufferRow> PerLayerBuffers(const ModelConfig& c) {
  const int64_t cols = c.per_layer_input_size;
  constexpr int kStage = 5;  // used by no other part of a layer
  return {{.slot = kGateAndInput, .cols = 2 * cols, .stage = kStage},
          {.slot = kGated, .cols = cols, .product_input = true, .stage = kStage},
          {.slot = kSum, .cols = cols > 0 ? c.hidden_size : 0, .stage = kStage}};
}

absl::Status BeginPerLayerInputs(Decoder& d) {
  const ModelConfig& c = d.config();
  const int64_t cols = c.per_layer_input_size;
  if (cols == 0) return absl::OkStatus();
  const LayerWeights& w = d.model_weights();
  const MatrixView inputs = d.per_layer_inputs();
  d.MatMul(d.Stream(), w[kPerLayerProjection], inputs);
  d.ops().ScaleAndCap(1 / Root(c.hidden_size), 0, inputs);
  // Treats each layer's columns as a row.
  const MatrixView of_layers(inputs.data(), inputs.dtype(), inputs.rows() * c.num_hidden_layers,
                             cols);
  d.ops().RmsNorm(of_layers, w[kPerLayerNorm].vector, c.rms_norm_eps, of_layers);
  BH_RETURN_IF_ERROR(d.AddRows(w[kPerLayerEmbedding], Root(static_cast<double>(cols)), inputs));
  d.ops().ScaleAndCap(Root(0.5), 0, inputs);
  return absl::OkStatus();
}

void AddPerLayerInput(Decoder& d) {
  const ModelConfig& c = d.config();
  const LayerWeights& w = d.weights();
  const int64_t cols = c.per_layer_input_size;
  const MatrixView stream = d.Stream();
  if (cols > 0) {
    const MatrixView both = d.Buffer(kGateAndInput);  // [T, 2P]
    const MatrixView gated = d.Buffer(kGated);
    const MatrixView sum = d.Buffer(kSum);
    d.MatMul(stream, w[kGate], both.Cols(0, cols));
    d.ops().Fill(0.0F, both.Cols(cols, cols));
    d.ops().AddResidual(d.per_layer_input(), ConstMatrixView(), 1, both.Cols(cols, cols));
    d.ops().GatedActivation(c.activation, both, gated);
    d.MatMul(gated, w[kProjection], sum);
    d.ops().RmsNorm(sum, w[kNorm].vector, c.rms_norm_eps, sum);
    d.ops().AddResidual(sum, ConstMatrixView(), 1, stream);
  }
  d.ops().ScaleBy(w[kScalar].vector.F32(), stream);
}

}  // namespace bulkhead::families
