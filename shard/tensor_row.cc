#include "shard/tensor_row.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/arithmetic.h"
#include "base/check.h"
#include "shard/family_spec.h"
#include "shard/module_filter.h"

namespace bulkhead {
namespace {

// Elements of a dimension of `full` per unit, for `units` units.
int64_t WidthOf(int64_t full, int64_t units) {
  BH_CHECK(units > 0 && full % units == 0);
  return full / units;
}

Range Scaled(Range units, int64_t width) { return {units.begin * width, units.end * width}; }

bool Has(Range range, int64_t i) { return i >= range.begin && i < range.end; }

// The part of a dimension of `full` elements that `shard` owns.
Range OwnedOf(Split split, int64_t full, const TensorRow& row, const RankShard& shard) {
  const ModelConfig& model = *shard.model;
  switch (split) {
    case Split::kWhole:
      return {0, full};
    case Split::kHeads:
      return Scaled(shard.heads, WidthOf(full, model.num_attention_heads));
    case Split::kKvHeads:
      return Scaled(shard.kv_heads, WidthOf(full, model.num_key_value_heads));
    case Split::kFullKvHeads:
      return Scaled(shard.full_kv_heads, WidthOf(full, model.full_heads.num_key_value_heads));
    case Split::kMlp:
      return Scaled(shard.mlp, WidthOf(full, model.intermediate_size));
    case Split::kExpertMlp:
      return Scaled(shard.expert_mlp, WidthOf(full, model.moe.intermediate_size));
    case Split::kSharedMlp:
      return Scaled(shard.shared_mlp, WidthOf(full, model.moe.shared_intermediate_size));
    case Split::kVocab:
      return Scaled(shard.vocab, WidthOf(full, model.vocab_size));
    case Split::kDeltaKeys:
      return Scaled(shard.delta_keys, WidthOf(full, model.delta.num_key_heads));
    case Split::kDeltaValues:
      return Scaled(shard.delta_values, WidthOf(full, model.delta.num_value_heads));
    case Split::kExperts:
      BH_CHECK(row.expert >= 0 && row.expert < model.moe.num_experts);
      return {0, Has(shard.experts, row.expert) ? full : 0};
    case Split::kEachHead:
      BH_CHECK(row.head >= 0 && row.head < model.num_attention_heads);
      return {0, Has(shard.heads, row.head) ? full : 0};
    case Split::kEachDeltaKey:
      return {0, Has(shard.delta_keys, row.head) ? full : 0};
    case Split::kEachDeltaValue:
      return {0, Has(shard.delta_values, row.head) ? full : 0};
  }
  BH_CHECK(false);
}

// Borders of the sum tree's leaves in the owned inputs.
std::vector<int64_t> InputBorders(const TensorRow& row, const RankShard& shard) {
  const ModelConfig& model = *shard.model;
  const auto scaled = [](std::vector<int64_t> borders, int64_t width) {
    for (int64_t& border : borders) border *= width;
    return borders;
  };
  switch (row.input_split) {
    case Split::kWhole:
      return {0, row.cols};
    case Split::kExperts:
    case Split::kEachHead:
      return {0, OwnedOf(row.input_split, row.cols, row, shard).size()};
    case Split::kHeads:
      return scaled(shard.head_borders, WidthOf(row.cols, model.num_attention_heads));
    case Split::kMlp:
      return scaled(shard.mlp_borders, WidthOf(row.cols, model.intermediate_size));
    case Split::kExpertMlp:
      return scaled(shard.expert_mlp_borders, WidthOf(row.cols, model.moe.intermediate_size));
    case Split::kSharedMlp:
      return scaled(shard.shared_mlp_borders,
                    WidthOf(row.cols, model.moe.shared_intermediate_size));
    case Split::kDeltaValues:
      return scaled(shard.delta_borders, WidthOf(row.cols, model.delta.num_value_heads));
    case Split::kKvHeads:
    case Split::kFullKvHeads:
    case Split::kVocab:
    case Split::kDeltaKeys:
    case Split::kEachDeltaKey:
    case Split::kEachDeltaValue:
      break;  // no product sums over these
  }
  BH_CHECK(false);
}

struct MatrixFormat {
  WeightFormat format;
  int group_size;
  bool act_order;
  ScaleFormat scales;
};
MatrixFormat FormatOf(const TensorRow& row, const WeightFormats& held_as) {
  if (row.held_as == HeldAs::kF32Matrix) return {WeightFormat::kF32, 0, false, {}};
  if (row.held_as == HeldAs::kAdapterMatrix) {
    return {IsQuantized(held_as.layers) ? WeightFormat::kBF16 : held_as.layers, 0, false, {}};
  }
  if (row.held_as == HeldAs::kTable || row.held_as == HeldAs::kKeptMatrix ||
      row.held_as == HeldAs::kDequantized) {
    return {held_as.tables, held_as.table_group_size, false, ScaleFormat::kF16};
  }
  return {held_as.layers, held_as.group_size, held_as.act_order, held_as.scales};
}

}  // namespace

std::string TensorRow::Module() const {
  if (layer < 0) return absl::StrCat(prefix, name);
  return absl::StrCat(prefix, model_prefix, "layers.", layer, ".", name);
}

std::string TensorRow::Name() const { return absl::StrCat(Module(), field); }

std::vector<int64_t> TensorRow::Shape() const {
  std::vector<int64_t> shape{FileSize()};
  if (is_transposed) {
    shape.insert(shape.begin(), file_inputs > 0 ? file_inputs : cols);
  } else if (!is_vector()) {
    shape.push_back(cols);
  }
  if (file_taps > 0) shape = {FileSize() / file_taps, 1, file_taps};
  if (file_experts > 0) shape.insert(shape.begin(), file_experts);
  return shape;
}

std::vector<TensorRow> ModelTensors(const ModelConfig& config) {
  TensorTable table(*config.family);
  config.family->model_tensors(config, table);
  std::vector<TensorRow> rows = table.Take();
  for (const absl::string_view name :
       absl::StrSplit(config.family->not_served, ',', absl::SkipEmpty())) {
    rows.push_back({.name = std::string(name), .optional = true});
  }
  return rows;
}

namespace {

// How a layer's matrix of a quantised checkpoint is held.
HeldAs HeldFrom(const TensorRow& row, const QuantizationConfig& quantization) {
  const bool experts_alone = quantization.method == QuantizationConfig::Method::kMxfp4;
  const bool is_linear = row.file_experts == 0;
  const std::string module(absl::StripSuffix(row.Module(), ".weight"));  // Granite's experts
  if ((experts_alone && is_linear) ||
      (quantization.modules != nullptr && !quantization.modules->Selects(module, is_linear))) {
    return HeldAs::kKeptMatrix;
  }
  return row.head >= 0 && !row.joins_heads ? HeldAs::kDequantized : HeldAs::kLayerMatrix;
}

// `rows`, followed by those of the layers.
std::vector<TensorRow> WithLayers(std::vector<TensorRow> rows, const ModelConfig& config,
                                  Range layers) {
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    std::vector<TensorRow> more = LayerTensors(config, static_cast<int>(layer));
    std::move(more.begin(), more.end(), std::back_inserter(rows));
  }
  return rows;
}

}  // namespace

std::vector<TensorRow> LayerTensors(const ModelConfig& config, int layer) {
  TensorTable table(*config.family, layer, config.moe.num_experts);
  config.family->layer_tensors(config, layer, table);
  std::vector<TensorRow> rows = table.Take();
  for (TensorRow& row : rows) {
    if (config.mtp_layer > 0 && config.family->mtp_prefix != nullptr) {
      row.model_prefix = config.family->mtp_prefix;
    } else {
      row.layer += config.mtp_layer;
    }
  }
  if (config.quantization.method == QuantizationConfig::Method::kNone) return rows;
  for (TensorRow& row : rows) {
    if (row.held_as == HeldAs::kLayerMatrix) row.held_as = HeldFrom(row, config.quantization);
  }
  return rows;
}

std::vector<TensorRow> AllTensors(const ModelConfig& config) {
  return WithLayers(ModelTensors(config), config, {0, config.num_hidden_layers});
}

std::vector<TensorRow> ModelTensorsOf(const RankShard& shard) {
  // A tied head is the embedding.
  const bool embeds =
      shard.first_stage() || (shard.last_stage() && shard.model->tie_word_embeddings);
  std::vector<TensorRow> rows = ModelTensors(*shard.model);
  std::erase_if(rows, [&](const TensorRow& row) {
    const bool is_held = row.slot == kEmbedding           ? embeds
                         : row.slot >= kPerLayerEmbedding ? shard.first_stage()
                                                          : shard.last_stage();
    return row.optional || !is_held;
  });
  return rows;
}

std::vector<TensorRow> TensorsOf(const RankShard& shard) {
  std::vector<TensorRow> rows = WithLayers(ModelTensorsOf(shard), *shard.model, shard.layers);
  std::erase_if(rows, [](const TensorRow& row) { return row.optional; });
  return rows;
}

TensorSlice SliceOf(const TensorRow& row, const RankShard& shard) {
  const auto owned = [&](Split split, int64_t full) { return OwnedOf(split, full, row, shard); };
  if (row.is_vector()) return {{0, 1}, owned(row.output_split, row.cols)};
  return {owned(row.output_split, row.rows), owned(row.input_split, row.cols)};
}

LinearShape LinearShapeOf(const TensorRow& row, const RankShard& shard,
                          const WeightFormats& held_as) {
  const TensorSlice slice = SliceOf(row, shard);
  const MatrixFormat held = FormatOf(row, held_as);
  LinearShape shape{slice.rows.size(), slice.cols.size(), held.format, InputBorders(row, shard)};
  if (!IsQuantized(held.format)) return shape;
  shape.groups.size = held.group_size;
  shape.groups.scales = held.scales;
  if (held.act_order) {
    shape.groups.indexed = static_cast<int>(CeilDiv(row.cols, held.group_size));
  } else {
    shape.groups.phase = static_cast<int>(slice.cols.begin % held.group_size);
  }
  return shape;
}

int64_t StoredBytes(const TensorRow& row, const RankShard& shard, const WeightFormats& held_as) {
  const TensorSlice slice = SliceOf(row, shard);
  const int64_t count = slice.rows.size() * slice.cols.size();
  const MatrixFormat held = FormatOf(row, held_as);
  if (!IsQuantized(held.format)) return count * WeightBits(held.format) / 8;
  if (row.is_vector()) return count * 2;  // as files of this kind hold norms and biases
  const int64_t groups = slice.rows.size() * CeilDiv(slice.cols.size(), held.group_size);
  const int group_bytes = held.format == WeightFormat::kFp8    ? 4
                          : IsFp4(held.format)                 ? 1
                          : held.format == WeightFormat::kInt4 ? 3
                                                               : 2;
  const int64_t factors = held.format == WeightFormat::kNvfp4 ? slice.rows.size() * 4 : 0;
  return count * WeightBits(held.format) / 8 + groups * group_bytes + factors;
}

}  // namespace bulkhead
