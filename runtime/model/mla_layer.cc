#include "runtime/model/mla_layer.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace bulkhead::families {
namespace {

// After the slots of the rest of the layer (decoder_layer.cc, moe_layer.cc).
enum Weights { kQA = 32, kQANorm, kQ, kKvA, kKvANorm, kKeysOfHeads, kValuesOfHeads, kKeyScales };
enum Buffers { kQAOut = 16, kQOut, kLatents, kAttended, kValues };

// Epsilon of the latents' norms, which the reference does not take from the config.
constexpr float kLatentNormEpsilon = 1e-6F;

constexpr int kMaxRank = 4096;
constexpr int kMaxDim = 1024;  // maximum of a part of a head

// A slot's matrices of this rank's heads.
absl::Span<const Linear> OfOwnHeads(Decoder& d, const Weight& weight) {
  return absl::MakeConstSpan(weight.parts).subspan(d.first_head(), d.heads().num_heads);
}

}  // namespace

void ReadLatents(ConfigFields& fields, ModelConfig& config) {
  LatentConfig& latent = config.latent;
  latent.kv_rank = fields.RequiredInt("kv_lora_rank", 2, kMaxRank);
  latent.q_rank = fields.Int("q_lora_rank", 1, 1 << 16).value_or(0);
  latent.nope_dim = fields.RequiredInt("qk_nope_head_dim", 1, kMaxDim);
  latent.rope_dim = fields.RequiredInt("qk_rope_head_dim", 2, kMaxDim);
  latent.value_dim = fields.RequiredInt("v_head_dim", 1, kMaxDim);
  if (latent.kv_rank % 2 != 0) fields.Invalid("kv_lora_rank", "it must be even");
  if (latent.rope_dim % 2 != 0) fields.Invalid("qk_rope_head_dim", "it must be even");
  const std::optional<int> q_dim = fields.Int("qk_head_dim", 1, 2 * kMaxDim);
  if (q_dim.has_value() && *q_dim != latent.q_dim()) {
    fields.Invalid("qk_head_dim",
                   absl::StrCat("it must be qk_nope_head_dim and qk_rope_head_dim together, ",
                                latent.q_dim()));
  }
}

void SetLatentHeads(ConfigFields& fields, ModelConfig& config) {
  const LatentConfig& latent = config.latent;
  if (config.num_key_value_heads != config.num_attention_heads) {
    fields.Unsupported("num_key_value_heads",
                       absl::StrCat("latent attention has keys and values for each head: it must "
                                    "be num_attention_heads, ",
                                    config.num_attention_heads));
  }
  if (config.head_dim != latent.rope_dim) {
    fields.Unsupported("head_dim",
                       absl::StrCat("it must be absent or qk_rope_head_dim, ", latent.rope_dim));
  }
  // Each head has two matrices of its own, by which plans and loads iterate.
  constexpr int64_t kMaxHeadsOfModel = 1 << 16;
  if (int64_t{config.num_attention_heads} * config.num_hidden_layers > kMaxHeadsOfModel) {
    fields.Invalid("num_attention_heads",
                   absl::StrCat("over all ", config.num_hidden_layers, " layers there may be ",
                                kMaxHeadsOfModel, " heads with latent attention"));
  }
  config.num_key_value_heads = 1;
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(latent.q_dim())));
}

void LatentTensors(const ModelConfig& c, TensorTable& t) {
  const LatentConfig& latent = c.latent;
  const int64_t heads = c.num_attention_heads;
  const int64_t rank = latent.kv_rank;
  if (latent.q_rank > 0) {
    t.ColumnParallel(kQA, "self_attn.q_a_proj", latent.q_rank, c.hidden_size, Split::kWhole,
                     c.qkv_bias);
    t.Norm(kQANorm, "self_attn.q_a_layernorm", latent.q_rank);
    t.ColumnParallel(kQ, "self_attn.q_b_proj", heads * latent.q_dim(), latent.q_rank, Split::kHeads,
                     false);
  } else {
    t.ColumnParallel(kQ, "self_attn.q_proj", heads * latent.q_dim(), c.hidden_size, Split::kHeads,
                     false);
  }
  t.ColumnParallel(kKvA, "self_attn.kv_a_proj_with_mqa", latent.cached_dim(), c.hidden_size,
                   Split::kWhole, c.qkv_bias);
  t.Norm(kKvANorm, "self_attn.kv_a_layernorm", rank);
  if (c.quantization.fp8_kv) {
    t.KvScales(kKeyScales, "self_attn.k_scale", c.num_key_value_heads, Split::kWhole);
  }
  const int64_t of_head = latent.nope_dim + latent.value_dim;
  for (int head = 0; head < heads; ++head) {
    const int64_t begin = head * of_head;
    t.OfHead(kKeysOfHeads, "self_attn.kv_b_proj",
             {head, begin, latent.nope_dim, heads * of_head, true}, rank);
    t.OfHead(kValuesOfHeads, "self_attn.kv_b_proj",
             {head, begin + latent.nope_dim, latent.value_dim, heads * of_head}, rank);
  }
}

std::vector<BufferRow> LatentBuffers(const RankShard& shard) {
  const LatentConfig& latent = shard.model->latent;
  const int64_t heads = shard.heads.size();
  constexpr int kStage = 0;
  return {
      {.slot = kQAOut, .cols = latent.q_rank, .stage = kStage},
      {.slot = kQOut, .cols = heads * latent.q_dim(), .stage = kStage},
      {.slot = kLatents, .cols = (heads + 1) * latent.cached_dim(), .stage = kStage},
      {.slot = kAttended, .cols = heads * latent.kv_rank, .product_input = true, .stage = kStage},
      {.slot = kValues, .cols = heads * latent.value_dim, .product_input = true, .stage = kStage}};
}

MatrixView LatentAttention(Decoder& d, ConstMatrixView x) {
  const LatentConfig& latent = d.config().latent;
  const LayerWeights& w = d.weights();
  const int64_t rank = latent.kv_rank;
  const int64_t cached = latent.cached_dim();
  const MatrixView values = d.Buffer(kValues);  // [T, h value_dim]
  if (d.heads().num_heads == 0) return values;
  const MatrixView q = d.Buffer(kQOut);           // [T, h (nope + rope)]
  const MatrixView latents = d.Buffer(kLatents);  // [T, (h + 1) cached]: q of each head, the token
  const MatrixView attended = d.Buffer(kAttended);  // [T, h rank]
  const auto norm = [&](const Weight& weight, MatrixView of) {
    d.ops().RmsNorm(of, weight.vector, kLatentNormEpsilon, of);
  };
  if (latent.q_rank > 0) {
    const MatrixView q_a = d.Buffer(kQAOut);
    d.MatMul(x, w[kQA], q_a);
    norm(w[kQANorm], q_a);
    d.MatMul(q_a, w[kQ], q);
  } else {
    d.MatMul(x, w[kQ], q);
  }
  const MatrixView token = latents.Cols(latents.cols() - cached, cached);
  d.MatMul(x, w[kKvA], token);
  norm(w[kKvANorm], token.Cols(0, rank));
  d.ops().MatMulHeads(q, latent.q_dim(), OfOwnHeads(d, w[kKeysOfHeads]), latents, cached);
  d.ops().RopeLatents(d.index(), d.heads(), d.rotary(), q, latents);
  KvLayerView kv = d.kv();
  if (kv.geometry.format == KvFormat::kFP8 && !w[kKeyScales].vector.empty()) {
    kv.key_scales = w[kKeyScales].vector.F32();
  }
  d.ops().AppendKv(d.index(), d.heads(), latents, kv);
  d.ops().Attend(d.index(), d.heads(), latents, kv, d.attention(), attended);
  d.ops().MatMulHeads(attended, rank, OfOwnHeads(d, w[kValuesOfHeads]), values, latent.value_dim);
  return values;
}

}  // namespace bulkhead::families
