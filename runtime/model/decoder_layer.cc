#include "runtime/model/decoder_layer.h"

#include "base/status.h"

namespace bulkhead::families {
namespace {

enum Weights {
  kInputNorm,
  kQkv,
  kQNorm,
  kKNorm,
  kO,
  kAttentionNorm,
  kMlpNorm,
  kGateUp,
  kDown,
  kMlpOutNorm
};
enum Buffers { kQkvOut, kAttended, kGateUpOut, kActivated, kNormedSum };

void Norm(const ModelConfig& c, int slot, const char* name, TensorTable& t) {
  if (name != nullptr) t.Norm(slot, name, c.hidden_size, c.norm_weight_offset, c.norm_bias);
}

// The heads' sums of V [T, h d].
MatrixView Attention(Decoder& d, ConstMatrixView x) {
  const LayerWeights& w = d.weights();
  const MatrixView qkv = d.Buffer(kQkvOut);  // [T, (h + 2k) d]
  const MatrixView attended = d.Buffer(kAttended);
  const HeadNorms norms{w[kQNorm].vector, w[kKNorm].vector, d.config().rms_norm_eps,
                        d.config().qk_norm_after_rope};
  d.MatMul(x, w[kQkv], qkv);
  d.ops().NormRope(d.index(), d.heads(), norms, d.rotary(), qkv);
  d.ops().AppendKv(d.index(), d.heads(), qkv, d.kv());
  d.ops().Attend(d.index(), d.heads(), qkv, d.kv(), d.attention(), attended);
  return attended;
}

// What the MLP's last product reads [T, f].
MatrixView MlpInner(Decoder& d, ConstMatrixView x) {
  const MatrixView first = d.Buffer(kGateUpOut);  // [T, 2f], without a gate [T, f]
  const MatrixView activated = d.Buffer(kActivated);
  d.MatMul(x, d.weights()[kGateUp], first);
  if (d.config().gated_mlp) {
    d.ops().GatedActivation(d.config().activation, first, activated);
  } else {
    d.ops().Activate(d.config().activation, first, activated);
  }
  return activated;
}

}  // namespace

void ModelTensors(const ModelConfig& c, TensorTable& t) {
  t.VocabParallel(kEmbedding, "model.embed_tokens", c.vocab_size, c.hidden_size);
  Norm(c, kFinalNorm, "model.norm", t);
  if (c.tie_word_embeddings) {
    t.Optional("lm_head.weight");
  } else {
    t.VocabParallel(kLmHead, "lm_head", c.vocab_size, c.hidden_size);
  }
  t.Optional("model.rotary_emb.inv_freq");
  t.Optional("model.layers.*.self_attn.rotary_emb.inv_freq");
}

void LayerTensors(const LayerNames& names, const ModelConfig& c, TensorTable& t) {
  const int64_t hidden = c.hidden_size;
  const int64_t q = int64_t{c.num_attention_heads} * c.head_dim;
  const int64_t kv = int64_t{c.num_key_value_heads} * c.head_dim;
  const int64_t mlp = c.intermediate_size;
  Norm(c, kInputNorm, names.input_norm, t);
  if (names.qkv != nullptr) {
    t.FusedColumnParallel(kQkv, names.qkv,
                          {{q, Split::kHeads}, {kv, Split::kKvHeads}, {kv, Split::kKvHeads}},
                          hidden, c.qkv_bias);
  } else {
    t.ColumnParallel(kQkv, names.q, q, hidden, Split::kHeads, c.qkv_bias);
    t.ColumnParallel(kQkv, names.k, kv, hidden, Split::kKvHeads, c.qkv_bias);
    t.ColumnParallel(kQkv, names.v, kv, hidden, Split::kKvHeads, c.qkv_bias);
  }
  if (c.qk_norm) {
    t.Norm(kQNorm, names.q_norm, c.head_dim, c.norm_weight_offset);
    t.Norm(kKNorm, names.k_norm, c.head_dim, c.norm_weight_offset);
  }
  t.RowParallel(kO, names.o, hidden, q, Split::kHeads, c.o_bias);
  Norm(c, kAttentionNorm, names.attention_norm, t);
  Norm(c, kMlpNorm, names.mlp_norm, t);
  if (names.gate_up != nullptr) {
    t.FusedColumnParallel(kGateUp, names.gate_up, {{mlp, Split::kMlp}, {mlp, Split::kMlp}}, hidden,
                          c.mlp_bias);
  } else {
    if (c.gated_mlp) t.ColumnParallel(kGateUp, names.gate, mlp, hidden, Split::kMlp, c.mlp_bias);
    t.ColumnParallel(kGateUp, names.up, mlp, hidden, Split::kMlp, c.mlp_bias);
  }
  t.RowParallel(kDown, names.down, hidden, mlp, Split::kMlp, c.mlp_bias);
  Norm(c, kMlpOutNorm, names.mlp_out_norm, t);
}

std::vector<BufferRow> LayerBuffers(const RankShard& shard) {
  const ModelConfig& c = *shard.model;
  const int64_t q = shard.heads.size() * c.head_dim;
  const int64_t kv = shard.kv_heads.size() * c.head_dim;
  const int64_t mlp = shard.mlp.size();
  std::vector<BufferRow> rows = {
      {.slot = kQkvOut, .cols = q + 2 * kv, .stage = 0},
      {.slot = kAttended, .cols = q, .product_input = true, .stage = 0},
      {.slot = kGateUpOut, .cols = c.gated_mlp ? 2 * mlp : mlp, .stage = 1},
      {.slot = kActivated, .cols = mlp, .product_input = true, .stage = 1}};
  // Written when the products of a half are done, and read before those of the next.
  rows.push_back({.slot = kNormedSum, .cols = c.norms_sums ? c.hidden_size : 0, .stage = 2});
  return rows;
}

absl::Status SequentialLayer(Decoder& d) {
  const LayerWeights& w = d.weights();
  const MatrixView normed = d.Buffer(kNormedSum);
  BH_RETURN_IF_ERROR(
      d.AddNormedSum(Attention(d, d.Norm(w[kInputNorm])), w[kO], w[kAttentionNorm], normed));
  return d.AddNormedSum(MlpInner(d, d.Norm(w[kMlpNorm])), w[kDown], w[kMlpOutNorm], normed);
}

absl::Status ParallelLayer(Decoder& d) {
  const LayerWeights& w = d.weights();
  const ConstMatrixView normed = d.Norm(w[kInputNorm]);
  BH_RETURN_IF_ERROR(d.AddSum(Attention(d, normed), w[kO]));
  return d.AddSum(MlpInner(d, normed), w[kDown]);
}

void ReadBiases(ConfigFields& fields, bool o_too, ModelConfig& config) {
  config.qkv_bias = fields.Bool("attention_bias").value_or(false);
  config.o_bias = o_too && config.qkv_bias;
  config.mlp_bias = fields.Bool("mlp_bias").value_or(false);
}

void RopeInWindowLayersAlone(ModelConfig& config) {
  if (config.sliding_window > 0) config.layer_uses_rope = config.layer_uses_window;
}

}  // namespace bulkhead::families
