// Fields of config.json that decoders of many families share: a family's read_config combines them.
// Sizes come with limits that keep every product of two of them from overflowing.
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

// Defaults for fields that the file lacks.
struct SizeDefaults {
  int vocab_size = 0;  // 0: required, and so are the next two
  int num_attention_heads = 0;
  int num_key_value_heads = 0;  // 0: as many as heads
  int head_dim = 0;             // 0: hidden_size / num_attention_heads
  int intermediate_size = 0;    // 0: required
  int max_position_embeddings = 2048;
  const char* norm_epsilon_name = "rms_norm_eps";
  double norm_epsilon = 1e-6;
};
// hidden_size, intermediate_size, the numbers of layers and heads, head_dim, vocab_size,
// max_position_embeddings, the norms' epsilon. Sets attention_scale to 1 / sqrt(head_dim).
void ReadSizes(ConfigFields& fields, const SizeDefaults& defaults, ModelConfig& config);

// Which layers attend only to a window: layer_types gives it layer by layer, else all do.
struct WindowDefaults {
  int window = 0;            // default
  bool is_switched = false;  // needs use_sliding_window; from layer max_window_layers on
  // Every pattern-th layer has no window: sliding_window_pattern; 0: the family lacks this field.
  int pattern = 0;
  bool has_window = true;  // false: a window is refused
  // attention_chunk_size, for layers with chunked_attention in layer_types; 0: no such field.
  int chunk = 0;
};
void ReadWindow(ConfigFields& fields, const WindowDefaults& defaults, ModelConfig& config);

// Reads hidden_act and hidden_activation, which must name one of `allowed`; the default is the
// first of these.
void ReadActivation(ConfigFields& fields, absl::Span<const Activation> allowed,
                    ModelConfig& config);
// The same for one field.
void ReadActivationField(ConfigFields& fields, const char* name,
                         absl::Span<const Activation> allowed, ModelConfig& config);

// A mixture of experts: the names of its fields, and their defaults.
struct MoeFields {
  std::vector<const char*> num_experts = {"num_experts", "num_local_experts"};  // either
  int default_num_experts = 0;  // 0: required, and so is the next
  int num_experts_per_tok = 0;
  const char* intermediate_size = "moe_intermediate_size";  // of an expert
  const char* per_token_name = "num_experts_per_tok";
};
void ReadMoe(ConfigFields& fields, const MoeFields& moe, ModelConfig& config);
// n_shared_experts, which are read as one MLP as wide as all of them together.
void ReadSharedExperts(ConfigFields& fields, int default_count, ModelConfig& config);
// Which layers have experts. If all have, there is no MLP of intermediate_size.
void SetExpertLayers(absl::FunctionRef<bool(int layer)> uses_experts, ModelConfig& config);
// Mixtral's MoE: in every layer 2 of 8 experts of width intermediate_size, weighed by a softmax
// over the chosen ones.
void ReadMixtralMoe(ConfigFields& fields, ModelConfig& config);
// n_group, topk_group (and their defaults): experts are chosen from the best groups by the sum of
// each group's best `experts_per_group_score` scores.
struct ExpertGroups {
  int count = 1;
  int chosen = 1;
};
void ReadExpertGroups(ConfigFields& fields, ExpertGroups by_default, int experts_per_group_score,
                      ModelConfig& config);

// Linear attention by the gated delta rule in the layers that layer_types calls linear_attention,
// else in all except every full_attention_interval-th; attn_output_gate gates the others.
void ReadGatedDelta(ConfigFields& fields, ModelConfig& config);

// A number from 1e-6 to 1e6; `by_default` where the field is absent.
float ReadFactor(ConfigFields& fields, const char* name, double by_default);
// A soft cap: 0 if the field is null, `by_default` if it is absent.
float ReadSoftCap(ConfigFields& fields, const char* name, double by_default = 0);

}  // namespace bulkhead
