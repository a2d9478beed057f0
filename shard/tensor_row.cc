#include "shard/tensor_row.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/arithmetic.h"
#include "base/check.h"
#include "shard/family_spec.h"

namespace bulkhead {
namespace {

// Elements that a dimension of `full` has for each of `units`.
int64_t WidthOf(int64_t full, int64_t units) {
  BH_CHECK(units > 0 && full % units == 0);
  return full / units;
}

Range Scaled(Range units, int64_t width) { return {units.begin * width, units.end * width}; }

// The part of a dimension of `full` elements that `shard` owns.
Range OwnedOf(Split split, int64_t full, int expert, const RankShard& shard) {
  const ModelConfig& model = *shard.model;
  switch (split) {
    case Split::kWhole:
      return {0, full};
    case Split::kHeads:
      return Scaled(shard.heads, WidthOf(full, model.num_attention_heads));
    case Split::kKvHeads:
      return Scaled(shard.kv_heads, WidthOf(full, model.num_key_value_heads));
    case Split::kMlp:
      return Scaled(shard.mlp, WidthOf(full, model.intermediate_size));
    case Split::kVocab:
      return Scaled(shard.vocab, WidthOf(full, model.vocab_size));
    case Split::kExperts:
      BH_CHECK(expert >= 0 && expert < model.num_experts);
      return {0, expert >= shard.experts.begin && expert < shard.experts.end ? full : 0};
  }
  BH_CHECK(false);
}

// Where the leaves of the sum's tree begin and end in the owned inputs.
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
      return {0, OwnedOf(row.input_split, row.cols, row.expert, shard).size()};
    case Split::kHeads:
      return scaled(shard.head_borders, WidthOf(row.cols, model.num_attention_heads));
    case Split::kMlp:
      return scaled(shard.mlp_borders, WidthOf(row.cols, model.intermediate_size));
    case Split::kKvHeads:
    case Split::kVocab:
      break;  // no product sums over these
  }
  BH_CHECK(false);
}

struct MatrixFormat {
  WeightFormat format;
  int group_size;
  bool act_order;
};
MatrixFormat FormatOf(const TensorRow& row, const WeightFormats& held_as) {
  if (row.held_as == HeldAs::kTable) return {held_as.tables, held_as.table_group_size, false};
  return {held_as.layers, held_as.group_size, held_as.act_order};
}

}  // namespace

std::string TensorRow::Name() const {
  if (layer < 0) return absl::StrCat(prefix, name, field);
  return absl::StrCat(prefix, layer_prefix, layer, ".", name, field);
}

std::vector<int64_t> TensorRow::Shape() const {
  return is_vector() ? std::vector<int64_t>{FileSize()} : std::vector<int64_t>{FileSize(), cols};
}

void TensorTable::Add(TensorRow row) {
  row.prefix = family_.prefix;
  row.layer_prefix = family_.layer_prefix;
  row.layer = layer_;
  row.expert = expert_;
  rows_.push_back(std::move(row));
}

void TensorTable::ColumnParallel(int slot, const char* name, int64_t rows, int64_t cols,
                                 Split split, bool bias) {
  Add({.name = name,
       .field = ".weight",
       .slot = slot,
       .held_as = HeldAs::kLayerMatrix,
       .rows = rows,
       .cols = cols,
       .output_split = split});
  if (bias)
    Add({.name = name, .field = ".bias", .slot = slot, .cols = rows, .output_split = split});
}

void TensorTable::RowParallel(int slot, const char* name, int64_t rows, int64_t cols, Split split,
                              bool bias) {
  Add({.name = name,
       .field = ".weight",
       .slot = slot,
       .held_as = HeldAs::kLayerMatrix,
       .rows = rows,
       .cols = cols,
       .input_split = split});
  if (bias) Add({.name = name, .field = ".bias", .slot = slot, .cols = rows});
}

void TensorTable::VocabParallel(int slot, const char* name, int64_t rows, int64_t cols) {
  Add({.name = name,
       .field = ".weight",
       .slot = slot,
       .held_as = HeldAs::kTable,
       .rows = rows,
       .cols = cols,
       .output_split = Split::kVocab});
}

void TensorTable::FusedColumnParallel(int slot, const char* name, absl::Span<const Part> parts,
                                      int64_t cols, bool bias) {
  int64_t size = 0;
  for (const Part& part : parts) size += part.rows;
  int64_t begin = 0;
  for (const Part& part : parts) {
    Add({.name = name,
         .field = ".weight",
         .slot = slot,
         .held_as = HeldAs::kLayerMatrix,
         .rows = part.rows,
         .cols = cols,
         .output_split = part.split,
         .file_begin = begin,
         .file_size = size});
    if (bias) {
      Add({.name = name,
           .field = ".bias",
           .slot = slot,
           .cols = part.rows,
           .output_split = part.split,
           .file_begin = begin,
           .file_size = size});
    }
    begin += part.rows;
  }
}

void TensorTable::Norm(int slot, const char* name, int64_t cols, float offset, bool bias) {
  Add({.name = name, .field = ".weight", .slot = slot, .cols = cols, .value_offset = offset});
  if (bias) Add({.name = name, .field = ".bias", .slot = slot, .cols = cols});
}

void TensorTable::Optional(const char* name) { Add({.name = name, .optional = true}); }

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

std::vector<TensorRow> LayerTensors(const ModelConfig& config, int layer) {
  TensorTable table(*config.family, layer);
  config.family->layer_tensors(config, layer, table);
  return table.Take();
}

namespace {

// `rows`, then those of the layers.
std::vector<TensorRow> WithLayers(std::vector<TensorRow> rows, const ModelConfig& config,
                                  Range layers) {
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    std::vector<TensorRow> more = LayerTensors(config, static_cast<int>(layer));
    std::move(more.begin(), more.end(), std::back_inserter(rows));
  }
  return rows;
}

}  // namespace

std::vector<TensorRow> AllTensors(const ModelConfig& config) {
  return WithLayers(ModelTensors(config), config, {0, config.num_hidden_layers});
}

std::vector<TensorRow> ModelTensorsOf(const RankShard& shard) {
  // A tied head is the embedding.
  const bool embeds =
      shard.first_stage() || (shard.last_stage() && shard.model->tie_word_embeddings);
  std::vector<TensorRow> rows = ModelTensors(*shard.model);
  std::erase_if(rows, [&](const TensorRow& row) {
    return row.optional || !(row.slot == kEmbedding ? embeds : shard.last_stage());
  });
  return rows;
}

std::vector<TensorRow> TensorsOf(const RankShard& shard) {
  std::vector<TensorRow> rows = WithLayers(ModelTensorsOf(shard), *shard.model, shard.layers);
  std::erase_if(rows, [](const TensorRow& row) { return row.optional; });
  return rows;
}

TensorSlice SliceOf(const TensorRow& row, const RankShard& shard) {
  const auto owned = [&](Split split, int64_t full) {
    return OwnedOf(split, full, row.expert, shard);
  };
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
  return count * WeightBits(held.format) / 8 +
         groups * (held.format == WeightFormat::kInt4 ? 3 : 2);
}

}  // namespace bulkhead
