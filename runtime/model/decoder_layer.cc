#include "runtime/model/decoder_layer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/model/mla_layer.h"

namespace bulkhead::families {
namespace {

enum Weights {
  kInputNorm,
  kQkv,
  kQNorm,
  kKNorm,
  kSinks,
  kO,
  kAttentionNorm,
  kMlpNorm,
  kGateUp,
  kDown,
  kMlpOutNorm,
  kGate,
  kKeyScales,
  kValueScales,
  kMlpSumNorm = 56,  // after all other slots
  kRouterNorm,
  kExpertsNorm,
  kExpertsSumNorm
};
enum Buffers {
  kQkvOut,
  kAttended,
  kGateUpOut,
  kActivated,
  kNormedSum,
  kGateAndSum,
  kMlpSum,
  kExpertsSum
};

void Norm(const ModelConfig& c, int slot, const char* name, TensorTable& t) {
  if (name != nullptr) t.Norm(slot, name, c.hidden_size, c.norm_weight_offset, c.norm_bias);
}

// q, k and v [T, (h + 2k) d]; k and v are not computed if the layer reads another layer's.
void ProjectHeads(Decoder& d, ConstMatrixView x, MatrixView qkv) {
  const int64_t dim = d.heads().head_dim;
  const int64_t q = d.heads().num_heads * dim;
  const int64_t kv = d.heads().num_kv_heads * dim;
  const Weight& weight = d.weights()[kQkv];
  if (!d.owns_kv()) return d.MatMul(x, weight, qkv.Cols(0, q));
  if (!d.config().ValuesAreKeys(d.model_layer())) return d.MatMul(x, weight, qkv);
  d.MatMul(x, weight, qkv.Cols(0, q + kv));
  d.ops().Fill(0.0F, qkv.Cols(q + kv, kv));
  d.ops().AddResidual(qkv.Cols(q, kv), ConstMatrixView(), 1, qkv.Cols(q + kv, kv));
}

// The layer's cache, with its scales if fp8.
KvLayerView KvOf(const Decoder& d) {
  const LayerWeights& w = d.kv_weights();
  KvLayerView kv = d.kv();
  if (kv.geometry.format != KvFormat::kFP8 || w[kKeyScales].vector.empty()) return kv;
  kv.key_scales = w[kKeyScales].vector.F32();
  kv.value_scales = w[kValueScales].vector.F32();
  return kv;
}

// The heads' attention outputs [T, h d].
absl::StatusOr<MatrixView> Attention(Decoder& d, ConstMatrixView x) {
  if (d.config().has_latents()) return LatentAttention(d, x);
  if (d.uses_delta()) return DeltaAttention(d, x);
  const LayerWeights& w = d.weights();
  const ModelConfig& c = d.config();
  HeadLayout heads = d.heads();
  const MatrixView qkv = d.Buffer(kQkvOut).Cols(0, heads.qkv_dim());  // [T, (h + 2k) d]
  const MatrixView attended =
      d.Buffer(kAttended).Cols(0, int64_t{heads.num_heads} * heads.out_dim());
  const Rotary rotary = d.rotary();
  HeadNorms norms{w[kQNorm].vector, w[kKNorm].vector, c.rms_norm_eps, c.qk_norm_after_rope};
  norms.without_weight = c.qk_norm_without_weight && !rotary.table.empty();
  norms.values = c.normed_values;
  ProjectHeads(d, x, qkv);
  if (c.qk_norm_of_all_heads) {
    BH_ASSIGN_OR_RETURN(norms.squares, d.SumHeadSquares(qkv));
    norms.q_size = int64_t{c.num_attention_heads} * c.head_dim;
    norms.k_size = int64_t{c.num_key_value_heads} * c.head_dim;
  }
  if (d.owns_kv()) {
    d.ops().NormRopeAppendKv(d.index(), heads, norms, rotary, qkv, KvOf(d));
  } else {
    heads.num_kv_heads = 0;
    d.ops().NormRope(d.index(), heads, norms, rotary, qkv.Cols(0, heads.qkv_dim()));
  }
  AttentionOptions options = d.attention();
  options.sinks = w[kSinks].vector;
  if (!c.attention_gate) {
    d.ops().Attend(d.index(), d.heads(), qkv, KvOf(d), options, attended);
    return attended;
  }
  const MatrixView both = d.Buffer(kGateAndSum);  // [T, 2 h d]
  d.MatMul(x, w[kGate], both.Cols(0, attended.cols()));
  d.ops().Attend(d.index(), d.heads(), qkv, KvOf(d), options,
                 both.Cols(attended.cols(), attended.cols()));
  d.ops().GatedActivation(Activation::kSigmoid, both, attended);
  return attended;
}

// Tensors of the layer's attention; q and a gate per head are one tensor if it has gates.
void QkvTensors(const LayerNames& names, const ModelConfig& c, TensorTable& t) {
  const int64_t hidden = c.hidden_size;
  const int64_t q = int64_t{c.num_attention_heads} * c.HeadDimOf(t.layer());
  const int64_t kv = int64_t{c.KvHeadsOf(t.layer())} * c.HeadDimOf(t.layer());
  const Split kv_split = c.HasFullHeads(t.layer()) ? Split::kFullKvHeads : Split::kKvHeads;
  if (c.quantization.fp8_kv && c.OwnsKv(t.layer())) {
    t.KvScales(kKeyScales, "self_attn.k_scale", c.KvHeadsOf(t.layer()), kv_split);
    t.KvScales(kValueScales, "self_attn.v_scale", c.KvHeadsOf(t.layer()), kv_split);
  }
  if (names.qkv != nullptr) {
    return t.FusedColumnParallel(kQkv, names.qkv,
                                 {{q, Split::kHeads}, {kv, Split::kKvHeads}, {kv, Split::kKvHeads}},
                                 hidden, c.qkv_bias);
  }
  if (c.attention_gate) {
    for (const int slot : {kQkv, kGate}) {
      for (int head = 0; head < c.num_attention_heads; ++head) {
        const int64_t begin = (2 * head + (slot == kGate ? 1 : 0)) * int64_t{c.head_dim};
        t.JoinedHead(slot, names.q, {head, begin, c.head_dim, 2 * q}, hidden, Split::kEachHead);
      }
    }
  } else {
    t.ColumnParallel(kQkv, names.q, q, hidden, Split::kHeads, c.qkv_bias);
  }
  if (!c.OwnsKv(t.layer())) return;
  t.ColumnParallel(kQkv, names.k, kv, hidden, kv_split, c.qkv_bias);
  if (c.ValuesAreKeys(t.layer())) return;
  t.ColumnParallel(kQkv, names.v, kv, hidden, kv_split, c.qkv_bias);
}

void AttentionTensors(const LayerNames& names, const ModelConfig& c, TensorTable& t) {
  const int head_dim = c.HeadDimOf(t.layer());
  const int64_t q = int64_t{c.num_attention_heads} * (c.has_latents() ? c.ValueDim() : head_dim);
  const int64_t kv = int64_t{c.num_key_value_heads} * c.head_dim;
  c.has_latents() ? LatentTensors(c, t) : QkvTensors(names, c, t);
  if (c.qk_norm && c.qk_norm_of_all_heads) {
    t.Vector(kQNorm, absl::StrCat(names.q_norm, ".weight"), q, Split::kHeads, c.norm_weight_offset);
    t.Vector(kKNorm, absl::StrCat(names.k_norm, ".weight"), kv, Split::kKvHeads,
             c.norm_weight_offset);
  } else if (c.qk_norm) {
    t.Norm(kQNorm, names.q_norm, head_dim, c.norm_weight_offset);
    if (c.OwnsKv(t.layer())) t.Norm(kKNorm, names.k_norm, head_dim, c.norm_weight_offset);
  }
  if (c.attention_sinks) t.Vector(kSinks, names.sinks, c.num_attention_heads, Split::kHeads);
  t.RowParallel(kO, names.o, c.hidden_size, q, Split::kHeads, c.o_bias);
}

// The input of the MLP's last product [T, f].
MatrixView MlpInner(Decoder& d, ConstMatrixView x) {
  const int64_t cols = d.mlp_cols();  // f
  const MatrixView activated = d.Buffer(kActivated).Cols(0, cols);
  const MatrixView first =  // [T, 2f], without a gate [T, f]
      d.Buffer(kGateUpOut).Cols(0, d.config().gated_mlp ? 2 * cols : cols);
  if (d.config().gated_mlp) {
    d.MatMulGated(x, d.weights()[kGateUp], first, activated);
  } else {
    d.MatMul(x, d.weights()[kGateUp], first);
    d.ops().Activate(d.config().activation, first, activated);
  }
  return activated;
}

// MLP and experts read the same residual stream, and the norm of their sum is added to it.
absl::Status AddMlpAndMoe(Decoder& d) {
  const LayerWeights& w = d.weights();
  const MatrixView mlp = d.Buffer(kMlpSum);
  const MatrixView sum = d.Buffer(kExpertsSum);
  BH_RETURN_IF_ERROR(d.AddSum(MlpInner(d, d.Norm(w[kMlpNorm])), w[kDown]));
  d.TakeNormedSum(w[kMlpSumNorm], mlp);
  RouteMoe(d, d.Norm(w[kRouterNorm]));
  BH_RETURN_IF_ERROR(AddRoutedMoe(d, d.Norm(w[kExpertsNorm])));
  d.TakeNormedSum(w[kExpertsSumNorm], sum);
  d.ops().AddResidual(mlp, ConstMatrixView(), 1, sum);
  d.ops().RmsNorm(sum, w[kMlpOutNorm].vector, d.config().rms_norm_eps, sum);
  d.ops().AddResidual(sum, ConstMatrixView(), 1, d.Stream());
  return absl::OkStatus();
}

}  // namespace

void ModelTensors(const ModelConfig& c, TensorTable& t) {
  const auto name = [&](const char* of) { return absl::StrCat(c.family->model_prefix, of); };
  t.VocabParallel(kEmbedding, name("embed_tokens"), c.vocab_size, c.hidden_size);
  Norm(c, kFinalNorm, name("norm").c_str(), t);
  if (c.tie_word_embeddings) {
    t.Optional("lm_head.weight");
  } else {
    t.VocabParallel(kLmHead, "lm_head", c.vocab_size, c.hidden_size);
  }
  t.Optional(name("rotary_emb.inv_freq"));
  t.Optional(name("layers.*.self_attn.rotary_emb.inv_freq"));
}

void ModelTensorsWithMtp(const ModelConfig& c, TensorTable& t) {
  const std::string model_prefix = c.family->model_prefix;
  const bool is_apart = c.family->mtp_prefix != nullptr;
  if (c.mtp_layer == 0) {
    ModelTensors(c, t);
    if (is_apart) return t.Optional(absl::StrCat(c.family->mtp_prefix, "*"));
    for (int i = 0; i < std::max(1, c.num_mtp_layers); ++i) {
      t.Optional(absl::StrCat(model_prefix, "layers.", c.num_hidden_layers + i, ".*"));
    }
    return;
  }
  const std::string prefix = is_apart ? std::string(c.family->mtp_prefix)
                                      : absl::StrCat(model_prefix, "layers.", c.mtp_layer, ".");
  const auto name = [&](const char* of, const char* of_apart) {
    return absl::StrCat(prefix, is_apart ? of_apart : of);
  };
  const std::string embedding = absl::StrCat(model_prefix, "embed_tokens.weight");
  t.VocabParallel(kEmbedding, name("embed_tokens", "embed_tokens"), c.vocab_size, c.hidden_size,
                  embedding);
  Norm(c, kMtpEmbeddingNorm, name("enorm", "pre_fc_norm_embedding").c_str(), t);
  Norm(c, kMtpHiddenNorm, name("hnorm", "pre_fc_norm_hidden").c_str(), t);
  t.WholeMatrix(kMtpProjection, name("eh_proj", "fc"), c.hidden_size, int64_t{2} * c.hidden_size);
  Norm(c, kFinalNorm, name("shared_head.norm", "norm").c_str(), t);
  const std::string head = name("shared_head.head", "lm_head");
  if (c.tie_word_embeddings) return t.Optional(absl::StrCat(head, ".weight"));
  t.VocabParallel(kLmHead, head, c.vocab_size, c.hidden_size, "lm_head.weight");
}

void LayerTensors(const LayerNames& names, const ModelConfig& c, TensorTable& t) {
  const int64_t hidden = c.hidden_size;
  const int64_t mlp = int64_t{c.intermediate_size} * c.MlpFactor(t.layer());
  Norm(c, kInputNorm, names.input_norm, t);
  if (c.UsesDelta(t.layer())) {
    DeltaTensors(names.delta, c, t);
    t.RowParallel(kO, names.delta.out, hidden, int64_t{c.delta.num_value_heads} * c.delta.value_dim,
                  Split::kDeltaValues, false);
  } else {
    AttentionTensors(names, c, t);
  }
  Norm(c, kAttentionNorm, names.attention_norm, t);
  Norm(c, kMlpNorm, names.mlp_norm, t);
  if (c.UsesExperts(t.layer())) {
    MoeTensors(names.moe, c, t);
    if (!c.moe.beside_mlp) return;
    Norm(c, kMlpSumNorm, names.mlp_sum_norm, t);
    t.Vector(kRouterNorm, names.router_norm, hidden, Split::kWhole);
    Norm(c, kExpertsNorm, names.experts_norm, t);
    Norm(c, kExpertsSumNorm, names.experts_sum_norm, t);
  }
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
  const int full_dim = c.full_heads.head_dim;
  const int64_t q = shard.heads.size() * std::max(c.head_dim, full_dim);
  const int64_t kv =
      std::max(shard.kv_heads.size() * c.head_dim, shard.full_kv_heads.size() * full_dim);
  const int64_t mlp = shard.mlp.size() * (c.double_wide_mlp ? 2 : 1);
  std::vector<BufferRow> rows = {
      {.slot = kGateUpOut, .cols = c.gated_mlp ? 2 * mlp : mlp, .stage = 1},
      {.slot = kActivated, .cols = mlp, .product_input = true, .stage = 1}};
  if (c.has_latents()) {
    for (const BufferRow& row : LatentBuffers(shard)) rows.push_back(row);
  } else {
    rows.push_back({.slot = kQkvOut, .cols = q + 2 * kv, .stage = 0});
    rows.push_back({.slot = kAttended, .cols = q, .product_input = true, .stage = 0});
    rows.push_back({.slot = kGateAndSum, .cols = c.attention_gate ? 2 * q : 0, .stage = 0});
  }
  // Written after the products of one half, and read before those of the next.
  rows.push_back({.slot = kNormedSum, .cols = c.norms_sums ? c.hidden_size : 0, .stage = 2});
  for (const int slot : {kMlpSum, kExpertsSum}) {  // in addition to the experts'
    rows.push_back({.slot = slot, .cols = c.moe.beside_mlp ? c.hidden_size : 0, .stage = 3});
  }
  for (const BufferRow& row : MoeBuffers(shard)) rows.push_back(row);
  for (const BufferRow& row : DeltaBuffers(shard)) rows.push_back(row);
  return rows;
}

absl::Status SequentialLayer(Decoder& d) {
  const LayerWeights& w = d.weights();
  const MatrixView normed = d.Buffer(kNormedSum);
  BH_ASSIGN_OR_RETURN(const MatrixView attended, Attention(d, d.Norm(w[kInputNorm])));
  BH_RETURN_IF_ERROR(d.AddNormedSum(attended, w[kO], w[kAttentionNorm], normed));
  if (d.uses_experts()) {
    return d.config().moe.beside_mlp ? AddMlpAndMoe(d) : AddMoe(d, d.Norm(w[kMlpNorm]));
  }
  return d.AddNormedSum(MlpInner(d, d.Norm(w[kMlpNorm])), w[kDown], w[kMlpOutNorm], normed);
}

absl::Status ParallelLayer(Decoder& d) {
  const LayerWeights& w = d.weights();
  const ConstMatrixView normed = d.Norm(w[kInputNorm]);
  BH_ASSIGN_OR_RETURN(const MatrixView attended, Attention(d, normed));
  BH_RETURN_IF_ERROR(d.AddSum(attended, w[kO]));
  return d.AddSum(MlpInner(d, normed), w[kDown]);
}

void ReadMtpLayers(ConfigFields& fields, const char* name, int num_layers, ModelConfig& config) {
  config.num_mtp_layers = fields.Int(name, 0, kMaxLayers).value_or(num_layers);
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
