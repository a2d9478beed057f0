// The table from weight names to splits: the one place that knows how a decoder's weights are
// called, how large they are and which part of each a rank owns.
#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "shard/shard_plan.h"

namespace bulkhead {
namespace {

constexpr absl::string_view kLayerPrefix = "model.layers.";
constexpr int kMaxLayerIndex = 1 << 20;
// Inputs of a group that is quantised at load.
constexpr int kGroupAtLoad = 128;

struct TableRow {
  WeightKind kind;
  absl::string_view name;  // within a layer: after "model.layers.<i>."
  bool in_layer;
};

constexpr auto kTable = std::to_array<TableRow>({
    {WeightKind::kEmbedding, "model.embed_tokens.weight", false},
    {WeightKind::kFinalNorm, "model.norm.weight", false},
    {WeightKind::kLmHead, "lm_head.weight", false},
    {WeightKind::kInputNorm, "input_layernorm.weight", true},
    {WeightKind::kQ, "self_attn.q_proj.weight", true},
    {WeightKind::kQBias, "self_attn.q_proj.bias", true},
    {WeightKind::kK, "self_attn.k_proj.weight", true},
    {WeightKind::kKBias, "self_attn.k_proj.bias", true},
    {WeightKind::kV, "self_attn.v_proj.weight", true},
    {WeightKind::kVBias, "self_attn.v_proj.bias", true},
    {WeightKind::kQNorm, "self_attn.q_norm.weight", true},
    {WeightKind::kKNorm, "self_attn.k_norm.weight", true},
    {WeightKind::kO, "self_attn.o_proj.weight", true},
    {WeightKind::kOBias, "self_attn.o_proj.bias", true},
    {WeightKind::kPostAttentionNorm, "post_attention_layernorm.weight", true},
    {WeightKind::kGate, "mlp.gate_proj.weight", true},
    {WeightKind::kGateBias, "mlp.gate_proj.bias", true},
    {WeightKind::kUp, "mlp.up_proj.weight", true},
    {WeightKind::kUpBias, "mlp.up_proj.bias", true},
    {WeightKind::kDown, "mlp.down_proj.weight", true},
    {WeightKind::kDownBias, "mlp.down_proj.bias", true},
});

// "model.layers.<index>.<rest>"; the index as transformers writes it, without sign or leading
// zeros.
bool SplitLayerName(absl::string_view name, int* layer, absl::string_view* rest) {
  if (!absl::ConsumePrefix(&name, kLayerPrefix)) return false;
  const size_t dot = name.find('.');
  if (dot == absl::string_view::npos) return false;
  const absl::string_view index = name.substr(0, dot);
  *rest = name.substr(dot + 1);
  return absl::SimpleAtoi(index, layer) && *layer >= 0 && *layer <= kMaxLayerIndex &&
         absl::StrCat(*layer) == index;
}

Range Scaled(Range range, int64_t factor) { return {range.begin * factor, range.end * factor}; }

bool IsNeeded(WeightKind kind, const ModelConfig& config) {
  switch (kind) {
    case WeightKind::kLmHead:
      return !config.tie_word_embeddings;
    case WeightKind::kQBias:
    case WeightKind::kKBias:
    case WeightKind::kVBias:
      return config.qkv_bias;
    case WeightKind::kOBias:
      return config.o_bias;
    case WeightKind::kGateBias:
    case WeightKind::kUpBias:
    case WeightKind::kDownBias:
      return config.mlp_bias;
    case WeightKind::kQNorm:
    case WeightKind::kKNorm:
      return config.qk_norm;
    default:
      return true;
  }
}

}  // namespace

absl::StatusOr<WeightName> ParseWeightName(absl::string_view name) {
  int layer = -1;
  absl::string_view rest = name;
  const bool in_layer = SplitLayerName(name, &layer, &rest);
  for (const TableRow& row : kTable) {
    if (row.in_layer == in_layer && row.name == rest)
      return WeightName{row.kind, in_layer ? layer : -1};
  }
  return absl::NotFoundError(
      absl::StrCat("'", name.substr(0, 200), "' is not the name of a weight of a supported model"));
}

std::string WeightNameOf(WeightKind kind, int layer) {
  const auto* row = std::find_if(kTable.begin(), kTable.end(),
                                 [&](const TableRow& candidate) { return candidate.kind == kind; });
  BH_CHECK(row != kTable.end() && row->in_layer == (layer >= 0));
  return row->in_layer ? absl::StrCat(kLayerPrefix, layer, ".", row->name) : std::string(row->name);
}

bool IsVector(WeightKind kind) {
  switch (kind) {
    case WeightKind::kEmbedding:
    case WeightKind::kQ:
    case WeightKind::kK:
    case WeightKind::kV:
    case WeightKind::kO:
    case WeightKind::kGate:
    case WeightKind::kUp:
    case WeightKind::kDown:
    case WeightKind::kLmHead:
      return false;
    default:
      return true;
  }
}

std::pair<int64_t, int64_t> FullShapeOf(WeightKind kind, const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t q = int64_t{config.num_attention_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_key_value_heads} * config.head_dim;
  const int64_t mlp = config.intermediate_size;
  switch (kind) {
    case WeightKind::kEmbedding:
    case WeightKind::kLmHead:
      return {config.vocab_size, hidden};
    case WeightKind::kQ:
      return {q, hidden};
    case WeightKind::kK:
    case WeightKind::kV:
      return {kv, hidden};
    case WeightKind::kO:
      return {hidden, q};
    case WeightKind::kGate:
    case WeightKind::kUp:
      return {mlp, hidden};
    case WeightKind::kDown:
      return {hidden, mlp};
    case WeightKind::kQBias:
      return {1, q};
    case WeightKind::kKBias:
    case WeightKind::kVBias:
      return {1, kv};
    case WeightKind::kGateBias:
    case WeightKind::kUpBias:
      return {1, mlp};
    case WeightKind::kQNorm:
    case WeightKind::kKNorm:
      return {1, config.head_dim};
    case WeightKind::kOBias:
    case WeightKind::kDownBias:
    case WeightKind::kInputNorm:
    case WeightKind::kPostAttentionNorm:
    case WeightKind::kFinalNorm:
      return {1, hidden};
  }
  BH_CHECK(false);
}

WeightSlice SliceOf(WeightKind kind, const ModelConfig& config, const RankShard& shard) {
  const auto [full_rows, full_cols] = FullShapeOf(kind, config);
  const Range rows = {0, full_rows};
  const Range cols = {0, full_cols};
  const Range q = Scaled(shard.heads, config.head_dim);
  const Range kv = Scaled(shard.kv_heads, config.head_dim);
  switch (kind) {
    case WeightKind::kEmbedding:
    case WeightKind::kLmHead:
      return {shard.vocab, cols};
    case WeightKind::kQ:
      return {q, cols};
    case WeightKind::kK:
    case WeightKind::kV:
      return {kv, cols};
    case WeightKind::kGate:
    case WeightKind::kUp:
      return {shard.mlp, cols};
    case WeightKind::kO:
    case WeightKind::kQBias:
      return {rows, q};
    case WeightKind::kDown:
    case WeightKind::kGateBias:
    case WeightKind::kUpBias:
      return {rows, shard.mlp};
    case WeightKind::kKBias:
    case WeightKind::kVBias:
      return {rows, kv};
    default:  // norms, and biases that every rank adds after the reduction
      return {rows, cols};
  }
}

std::vector<WeightName> RequiredWeights(const ModelConfig& config) {
  std::vector<WeightName> names;
  for (const TableRow& row : kTable) {
    if (!IsNeeded(row.kind, config)) continue;
    if (!row.in_layer) names.push_back({row.kind, -1});
    for (int layer = 0; row.in_layer && layer < config.num_hidden_layers; ++layer) {
      names.push_back({row.kind, layer});
    }
  }
  return names;
}

bool IsKnownSurplus(absl::string_view name, const ModelConfig& config) {
  if (name == "lm_head.weight") return config.tie_word_embeddings;
  int layer = -1;
  absl::string_view rest;
  return name == "model.rotary_emb.inv_freq" ||
         (SplitLayerName(name, &layer, &rest) && rest == "self_attn.rotary_emb.inv_freq");
}

WeightFormats WeightFormats::Of(DType dtype) {
  WeightFormats formats;
  formats.layers = formats.tables = WeightFormatOf(dtype);
  return formats;
}

WeightFormats WeightFormats::StoredBy(const ModelConfig& config, DType dtype) {
  WeightFormats formats = Of(dtype);
  if (config.quantization.method == QuantizationConfig::Method::kNone) return formats;
  formats.layers = WeightFormat::kInt4;
  formats.group_size = config.quantization.group_size;
  formats.act_order = config.quantization.act_order;
  return formats;
}

WeightFormats WeightFormats::AtLoad(WeightFormat format, int group_size) {
  WeightFormats formats;
  formats.layers = format;
  formats.group_size = group_size > 0 ? group_size : kGroupAtLoad;
  formats.tables = WeightFormat::kInt8;
  formats.table_group_size = format == WeightFormat::kInt8 ? formats.group_size : kGroupAtLoad;
  return formats;
}

std::string WeightFormatsText(const WeightFormats& formats) {
  std::string text(WeightFormatName(formats.layers));
  if (!IsQuantized(formats.layers)) return text;
  absl::StrAppend(&text, " in groups of ", formats.group_size,
                  formats.act_order ? " by index" : "");
  if (formats.tables != formats.layers || formats.table_group_size != formats.group_size) {
    absl::StrAppend(&text, ", tables ", WeightFormatName(formats.tables));
  }
  return text;
}

namespace {

// The part of `full_cols` inputs that begins at `begin`.
LinearShape LayerShape(int64_t rows, int64_t begin, std::vector<int64_t> borders, int64_t full_cols,
                       const WeightFormats& held_as) {
  LinearShape shape{rows, borders.back(), held_as.layers, std::move(borders)};
  if (!IsQuantized(held_as.layers)) return shape;
  shape.groups.size = held_as.group_size;
  if (held_as.act_order) {
    shape.groups.indexed = static_cast<int>((full_cols - 1) / held_as.group_size + 1);
  } else {
    shape.groups.phase = static_cast<int>(begin % held_as.group_size);
  }
  return shape;
}

LinearShape Table(int64_t rows, int64_t cols, const WeightFormats& held_as) {
  LinearShape shape{rows, cols, held_as.tables, {0, cols}};
  if (IsQuantized(held_as.tables)) shape.groups.size = held_as.table_group_size;
  return shape;
}

}  // namespace

LinearShape LinearShapeOf(LinearKind kind, const ModelConfig& config, const RankShard& shard,
                          const WeightFormats& held_as) {
  const int64_t hidden = config.hidden_size;
  const int64_t q = shard.heads.size() * config.head_dim;
  const int64_t kv = shard.kv_heads.size() * config.head_dim;
  switch (kind) {
    case LinearKind::kQkv:
      return LayerShape(q + 2 * kv, 0, {0, hidden}, hidden, held_as);
    case LinearKind::kO:
      return LayerShape(hidden, shard.heads.begin * config.head_dim, shard.o_borders,
                        int64_t{config.num_attention_heads} * config.head_dim, held_as);
    case LinearKind::kGateUp:
      return LayerShape(2 * shard.mlp.size(), 0, {0, hidden}, hidden, held_as);
    case LinearKind::kDown:
      return LayerShape(hidden, shard.mlp.begin, shard.down_borders, config.intermediate_size,
                        held_as);
    case LinearKind::kEmbedding:
    case LinearKind::kLmHead:
      return Table(shard.vocab.size(), hidden, held_as);
  }
  BH_CHECK(false);
}

int64_t FusedRowOf(WeightKind kind, const ModelConfig& config, const RankShard& shard) {
  switch (kind) {
    case WeightKind::kK:
    case WeightKind::kKBias:
      return shard.heads.size() * config.head_dim;
    case WeightKind::kV:
    case WeightKind::kVBias:
      return (shard.heads.size() + shard.kv_heads.size()) * config.head_dim;
    case WeightKind::kUp:
    case WeightKind::kUpBias:
      return shard.mlp.size();
    default:
      return 0;
  }
}

}  // namespace bulkhead
