// The layer of most decoders: attention and an MLP or experts, each between norms that a family may
// lack. A family names its tensors and sets the config's fields; the rest follows from both.
#pragma once

#include "runtime/model/decoder.h"
#include "runtime/model/delta_layer.h"
#include "runtime/model/family.h"
#include "runtime/model/moe_layer.h"
#include "shard/decoder_fields.h"

namespace bulkhead::families {

// Modules of a layer in the checkpoint; null: the layer has none.
struct LayerNames {
  const char* input_norm = "input_layernorm";
  const char* qkv = nullptr;  // q, k and v as one tensor
  const char* q = "self_attn.q_proj";
  const char* k = "self_attn.k_proj";
  const char* v = "self_attn.v_proj";
  const char* q_norm = "self_attn.q_norm";  // if config.qk_norm is set
  const char* k_norm = "self_attn.k_norm";
  const char* sinks = "self_attn.sinks";  // if config.attention_sinks is set; includes the field
  const char* o = "self_attn.o_proj";
  const char* attention_norm = nullptr;  // norm of attention's output
  const char* mlp_norm = "post_attention_layernorm";
  const char* gate_up = nullptr;  // gate and up as one tensor
  const char* gate = "mlp.gate_proj";
  const char* up = "mlp.up_proj";
  const char* down = "mlp.down_proj";
  const char* mlp_out_norm = nullptr;  // norm of the MLP's output
  MoeNames moe = {};                   // instead of an MLP if config.UsesExperts
  // With experts beside the MLP (config.moe.beside_mlp): norms of the MLP's output, of the router's
  // and the experts' input from the residual stream, and of the experts' output.
  const char* mlp_sum_norm = nullptr;
  const char* router_norm = nullptr;  // includes the field
  const char* experts_norm = nullptr;
  const char* experts_sum_norm = nullptr;
  DeltaNames delta = {};  // instead of attention if config.UsesDelta
};

inline constexpr LayerNames kLlamaLayer = {};
// Norms after attention and MLP, none before them (config.norms_sums).
inline constexpr LayerNames kNormedSumsLayer = {.input_norm = nullptr,
                                                .attention_norm = "post_attention_layernorm",
                                                .mlp_norm = nullptr,
                                                .mlp_out_norm = "post_feedforward_layernorm"};
inline constexpr LayerNames kSharedExpertsLayer = {
    .moe = {.shared_gate = "mlp.shared_experts.gate_proj",
            .shared_up = "mlp.shared_experts.up_proj",
            .shared_down = "mlp.shared_experts.down_proj"}};

// Adds the rows of embedding, final norm and head.
void ModelTensors(const ModelConfig& config, TensorTable& table);
// ModelTensors for a model that may have MTP layers, or for an MTP layer.
void ModelTensorsWithMtp(const ModelConfig& config, TensorTable& table);
void LayerTensors(const LayerNames& names, const ModelConfig& config, TensorTable& table);

std::vector<BufferRow> LayerBuffers(const RankShard& shard);
// Attention, then the MLP.
absl::Status SequentialLayer(Decoder& decoder);
// Attention and MLP in parallel, on the same norm of the residual stream (Cohere).
absl::Status ParallelLayer(Decoder& decoder);

// A family of SequentialLayer layers with the tensor names kNames.
template <const LayerNames& kNames = kLlamaLayer>
Family DecoderFamily(const char* architecture, const char* model_type,
                     void (*read_config)(ConfigFields& fields, ModelConfig& config),
                     const RopeDefaults& rope = {}) {
  return {.spec = {.architecture = architecture,
                   .model_type = model_type,
                   .read_config = read_config,
                   .model_tensors = ModelTensors,
                   .layer_tensors = [](const ModelConfig& c, int,
                                       TensorTable& t) { LayerTensors(kNames, c, t); },
                   .rope = rope},
          .buffers = LayerBuffers,
          .forward = SequentialLayer};
}

// Reads the number of MTP layers from the field `name`; default `num_layers`.
void ReadMtpLayers(ConfigFields& fields, const char* name, int num_layers, ModelConfig& config);

// Reads `attention_bias` (biases of q, k, v, and o if `o_too`) and `mlp_bias`.
void ReadBiases(ConfigFields& fields, bool o_too, ModelConfig& config);

// If the model has a window, only layers with it have positions (RoPE).
void RopeInWindowLayersAlone(ModelConfig& config);

}  // namespace bulkhead::families
