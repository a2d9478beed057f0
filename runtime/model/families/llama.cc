// Llama: RMSNorm, grouped-query attention with rotary embeddings, SwiGLU. Biases and norms of the
// heads are there where the config says so.
#include "runtime/model/families/llama.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/model/decoder.h"

namespace bulkhead::families {
namespace {

enum Weights { kInputNorm, kQkv, kQNorm, kKNorm, kO, kMlpNorm, kGateUp, kDown };
enum Buffers { kQkvOut, kAttended, kGateUpOut, kGated };

void ModelTensors(const ModelConfig& c, TensorTable& t) {
  t.VocabParallel(kEmbedding, "model.embed_tokens", c.vocab_size, c.hidden_size);
  t.Norm(kFinalNorm, "model.norm", c.hidden_size);
  if (c.tie_word_embeddings) {
    t.Optional("lm_head.weight");
  } else {
    t.VocabParallel(kLmHead, "lm_head", c.vocab_size, c.hidden_size);
  }
  t.Optional("model.rotary_emb.inv_freq");
  t.Optional("model.layers.*.self_attn.rotary_emb.inv_freq");
}

void LayerTensors(const ModelConfig& c, int /*layer*/, TensorTable& t) {
  const int64_t hidden = c.hidden_size;
  const int64_t q = int64_t{c.num_attention_heads} * c.head_dim;
  const int64_t kv = int64_t{c.num_key_value_heads} * c.head_dim;
  const int64_t mlp = c.intermediate_size;
  t.Norm(kInputNorm, "input_layernorm", hidden);
  t.ColumnParallel(kQkv, "self_attn.q_proj", q, hidden, Split::kHeads, c.qkv_bias);
  t.ColumnParallel(kQkv, "self_attn.k_proj", kv, hidden, Split::kKvHeads, c.qkv_bias);
  t.ColumnParallel(kQkv, "self_attn.v_proj", kv, hidden, Split::kKvHeads, c.qkv_bias);
  if (c.qk_norm) {
    t.Norm(kQNorm, "self_attn.q_norm", c.head_dim);
    t.Norm(kKNorm, "self_attn.k_norm", c.head_dim);
  }
  t.RowParallel(kO, "self_attn.o_proj", hidden, q, Split::kHeads, c.o_bias);
  t.Norm(kMlpNorm, "post_attention_layernorm", hidden);
  t.ColumnParallel(kGateUp, "mlp.gate_proj", mlp, hidden, Split::kMlp, c.mlp_bias);
  t.ColumnParallel(kGateUp, "mlp.up_proj", mlp, hidden, Split::kMlp, c.mlp_bias);
  t.RowParallel(kDown, "mlp.down_proj", hidden, mlp, Split::kMlp, c.mlp_bias);
}

std::vector<BufferRow> LayerBuffers(const RankShard& shard) {
  const int64_t d = shard.model->head_dim;
  const int64_t q = shard.heads.size() * d;
  const int64_t kv = shard.kv_heads.size() * d;
  return {{.slot = kQkvOut, .cols = q + 2 * kv, .stage = 0},
          {.slot = kAttended, .cols = q, .product_input = true, .stage = 0},
          {.slot = kGateUpOut, .cols = 2 * shard.mlp.size(), .stage = 1},
          {.slot = kGated, .cols = shard.mlp.size(), .product_input = true, .stage = 1}};
}

absl::Status Forward(Decoder& d) {
  const LayerWeights& w = d.weights();
  const float epsilon = d.config().rms_norm_eps;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d.config().head_dim)));

  const MatrixView qkv = d.Buffer(kQkvOut);         // [T, (h + 2k) d]
  const MatrixView attended = d.Buffer(kAttended);  // [T, h d]
  d.MatMul(d.Norm(w[kInputNorm]), w[kQkv], qkv);
  d.ops().NormRope(d.index(), d.heads(), w[kQNorm].vector, w[kKNorm].vector, epsilon, d.rope(),
                   qkv);
  d.ops().AppendKv(d.index(), d.heads(), qkv, d.kv());
  d.ops().Attend(d.index(), d.heads(), qkv, d.kv(), scale, d.window(), attended);
  BH_RETURN_IF_ERROR(d.AddSum(attended, w[kO]));

  const MatrixView gate_up = d.Buffer(kGateUpOut);  // [T, 2f]
  const MatrixView gated = d.Buffer(kGated);        // [T, f]
  d.MatMul(d.Norm(w[kMlpNorm]), w[kGateUp], gate_up);
  d.ops().SwiGlu(gate_up, gated);
  return d.AddSum(gated, w[kDown]);
}

bool ReadBias(ConfigFields& fields, const char* name, bool family_reads_it) {
  if (family_reads_it) return fields.Bool(name).value_or(false);
  fields.RefuseUnlessOff(name);
  return false;
}

void ReadConfig(ConfigFields& fields, ModelConfig& config) {
  ReadLlamaFields(fields, {.attention_bias = AttentionBias::kRead, .reads_mlp_bias = true}, config);
}

}  // namespace

void ReadLlamaFields(ConfigFields& fields, const LlamaFields& family, ModelConfig& config) {
  ReadSizes(fields, family.sizes, config);
  if (family.attention_bias == AttentionBias::kQkvAlways) {
    fields.Ignore("attention_bias");
    config.qkv_bias = true;
  } else {
    config.qkv_bias =
        ReadBias(fields, "attention_bias", family.attention_bias == AttentionBias::kRead);
    config.o_bias = config.qkv_bias;
  }
  config.mlp_bias = ReadBias(fields, "mlp_bias", family.reads_mlp_bias);
  config.qk_norm = family.qk_norm;
  RequireSilu(fields);
  const std::optional<double> query_scale = fields.Number("query_pre_attn_scalar", 0, 1e9);
  if (query_scale.has_value() && *query_scale != config.head_dim) {
    fields.Unsupported("query_pre_attn_scalar",
                       absl::StrCat("it must be absent or head_dim, ", config.head_dim));
  }
  ReadWindow(fields, family.window, config);
}

Family LlamaLike(const char* architecture, const char* model_type,
                 void (*read_config)(ConfigFields& fields, ModelConfig& config)) {
  return {.spec = {.architecture = architecture,
                   .model_type = model_type,
                   .read_config = read_config,
                   .model_tensors = ModelTensors,
                   .layer_tensors = LayerTensors},
          .buffers = LayerBuffers,
          .forward = Forward};
}

Family llama() { return LlamaLike("LlamaForCausalLM", "llama", ReadConfig); }

}  // namespace bulkhead::families
