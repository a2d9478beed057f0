// Shared by Gemma's generations: norms of 1 + w (until Gemma 4), embeddings times
// sqrt(hidden_size), gelu, heads of 256 columns, a head that is the embedding.
#pragma once

#include "runtime/model/decoder_layer.h"

namespace bulkhead::families {

Family gemma3();
Family gemma4();

// sqrt(hidden_size), in bf16 if the checkpoint is: as in training and in transformers.
float GemmaEmbeddingScale(const ModelConfig& config);
void ReadGemmaFields(ConfigFields& fields, const SizeDefaults& sizes, ModelConfig& config);
// From Gemma 2 on: scores scaled by query_pre_attn_scalar, soft caps (and their defaults), norms of
// the outputs of attention and MLP.
struct SoftCaps {
  double scores = 0;
  double logits = 0;
};
void ReadGemma2Fields(ConfigFields& fields, const SizeDefaults& sizes, const SoftCaps& by_default,
                      ModelConfig& config);

inline constexpr LayerNames kGemma2Layer = {.attention_norm = "post_attention_layernorm",
                                            .mlp_norm = "pre_feedforward_layernorm",
                                            .mlp_out_norm = "post_feedforward_layernorm"};

}  // namespace bulkhead::families
