// Fields of config.json that decoders of many families share: a family's read_config puts them
// together. Sizes come with limits that keep every product of two of them from overflowing.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "shard/config_fields.h"
#include "shard/model_config.h"

namespace bulkhead {

inline constexpr int kMaxVocabSize = 1 << 22;
inline constexpr int kMaxIntermediateSize = 1 << 20;
inline constexpr int kMaxLayers = 1024;
inline constexpr int kMaxHeads = 1024;
inline constexpr int kMaxHeadDim = 1024;

// What the fields mean where the file is silent.
struct SizeDefaults {
  int vocab_size = 0;  // 0: the file must say it, as the next
  int num_attention_heads = 0;
  int num_key_value_heads = 0;  // 0: as many as heads
  int head_dim = 0;             // 0: hidden_size / num_attention_heads
  int intermediate_size = 0;    // 0: the file must say it
  int max_position_embeddings = 2048;
  const char* norm_epsilon_name = "rms_norm_eps";
  double norm_epsilon = 1e-6;
};
// hidden_size, intermediate_size, the numbers of layers and heads, head_dim, vocab_size,
// max_position_embeddings, the norms' epsilon. Sets attention_scale to 1 / sqrt(head_dim).
void ReadSizes(ConfigFields& fields, const SizeDefaults& defaults, ModelConfig& config);

// Which layers attend to a window alone: layer_types says it layer by layer, else all do.
struct WindowDefaults {
  int window = 0;            // where the file is silent
  bool is_switched = false;  // on by use_sliding_window alone, from layer max_window_layers on
  // Every pattern-th layer has no window: sliding_window_pattern; 0: the family has no such
  // field.
  int pattern = 0;
  bool has_window = true;  // else one is refused
  // Of attention_chunk_size, by chunked_attention in layer_types; 0: the family has no such field.
  int chunk = 0;
};
void ReadWindow(ConfigFields& fields, const WindowDefaults& defaults, ModelConfig& config);

// hidden_act and hidden_activation, which must name one of `allowed`; the first of them where both
// are absent.
void ReadActivation(ConfigFields& fields, absl::Span<const Activation> allowed,
                    ModelConfig& config);
// One field likewise.
void ReadActivationField(ConfigFields& fields, const char* name,
                         absl::Span<const Activation> allowed, ModelConfig& config);

// A mixture of experts: the names of its fields, and what they mean where the file is silent.
struct MoeFields {
  std::vector<const char*> num_experts = {"num_experts", "num_local_experts"};  // either
  int default_num_experts = 0;  // 0: the file must say it, as the next
  int num_experts_per_tok = 0;
  const char* intermediate_size = "moe_intermediate_size";  // of an expert
  const char* per_token_name = "num_experts_per_tok";
};
void ReadMoe(ConfigFields& fields, const MoeFields& moe, ModelConfig& config);
// n_shared_experts of an expert's width, which are one that is as wide as all of them.
void ReadSharedExperts(ConfigFields& fields, int default_count, ModelConfig& config);
// Which layers have experts. Where all have, there is no MLP of intermediate_size.
void SetExpertLayers(absl::FunctionRef<bool(int layer)> uses_experts, ModelConfig& config);
// Mixtral's: in every layer 2 of 8 experts of width intermediate_size, weighed by a softmax over
// those that are chosen.
void ReadMixtralMoe(ConfigFields& fields, ModelConfig& config);
// n_group, topk_group (and what they are where the file is silent): experts are chosen from the
// best groups by the sum of their best `experts_per_group_score`.
struct ExpertGroups {
  int count = 1;
  int chosen = 1;
};
void ReadExpertGroups(ConfigFields& fields, ExpertGroups by_default, int experts_per_group_score,
                      ModelConfig& config);

// Linear attention by the gated delta rule in the layers that layer_types calls linear_attention,
// else in all but every full_attention_interval-th; the others have a gate by attn_output_gate.
void ReadGatedDelta(ConfigFields& fields, ModelConfig& config);

// A number from 1e-6 to 1e6; `by_default` where the field is absent.
float ReadFactor(ConfigFields& fields, const char* name, double by_default);
// A soft cap: 0 where the field is null, `by_default` where it is absent.
float ReadSoftCap(ConfigFields& fields, const char* name, double by_default = 0);

}  // namespace bulkhead
