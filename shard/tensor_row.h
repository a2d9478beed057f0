// TensorRow: a tensor of a model, as its family's file declares it, with the numbers of one config.
// What is expected of a checkpoint, slices, shapes, bytes, layout and loading follow from the rows.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "memory/linear.h"
#include "shard/model_config.h"
#include "shard/shard_plan.h"
#include "shard/weight_formats.h"

namespace bulkhead {

// Which range of a rank (shard_plan.h) cuts a dimension. A dimension of n elements has n / H of
// them for each head, n / F for each MLP column ...
// kExperts: a tensor of one expert, which the rank with that expert has whole.
enum class Split { kWhole, kHeads, kKvHeads, kMlp, kVocab, kExperts };

enum class HeldAs { kLayerMatrix, kTable, kVector };  // in WeightFormats' layers, tables; in f32

struct TensorRow {
  const char* prefix = "";  // FamilySpec's
  const char* layer_prefix = "";
  int layer = -1;          // -1 outside the layers
  std::string name;        // of the module: "mlp.up_proj"
  const char* field = "";  // "weight"
  int expert = -1;         // whose tensor it is, for Split::kExperts
  // Where the forward pass finds it: rows of one slot lie one after the other, matrices in one
  // matrix, vectors (their biases) in one vector.
  int slot = 0;
  HeldAs held_as = HeldAs::kVector;
  int64_t rows = 1;                    // outputs; 1 for a vector
  int64_t cols = 0;                    // inputs; a vector's elements
  Split output_split = Split::kWhole;  // of a vector's elements too
  Split input_split = Split::kWhole;
  // Where several rows share one tensor of the file: the first of its rows (a vector's elements)
  // that is this row's, and how many it has. 0: it is this row's alone.
  int64_t file_begin = 0;
  int64_t file_size = 0;
  float value_offset = 0;  // added to a vector's values
  // May be in the checkpoint, and is not held. Its name may have wildcards (fnmatch).
  bool optional = false;

  bool is_vector() const { return held_as == HeldAs::kVector; }
  // Rows (of a vector elements) of the file's tensor.
  int64_t FileSize() const { return file_size > 0 ? file_size : is_vector() ? cols : rows; }
  std::string Name() const;  // "model.layers.3.mlp.up_proj.weight"
  // As the checkpoint has it: [rows, cols]; [cols] for a vector.
  std::vector<int64_t> Shape() const;
};

// Slots of what a model has outside its layers.
enum ModelSlot { kEmbedding, kFinalNorm, kLmHead };

// Collects the rows of a layer, or of what is outside them; each call is a module of the model.
class TensorTable {
 public:
  explicit TensorTable(const FamilySpec& family, int layer = -1) : family_(family), layer_(layer) {}

  // Rows from here on are of this expert; -1: of none.
  void SetExpert(int expert) { expert_ = expert; }
  // Weight [rows, cols] and bias of a product whose outputs are split.
  void ColumnParallel(int slot, const char* name, int64_t rows, int64_t cols, Split split,
                      bool bias);
  // Of one whose inputs are split: ranks have partial sums. Every rank has the whole bias, and adds
  // it to the sum.
  void RowParallel(int slot, const char* name, int64_t rows, int64_t cols, Split split, bool bias);
  // Column-parallel parts that are one tensor of the file, one after the other.
  struct Part {
    int64_t rows;
    Split split;
  };
  void FusedColumnParallel(int slot, const char* name, absl::Span<const Part> parts, int64_t cols,
                           bool bias);
  // A table of the vocabulary.
  void VocabParallel(int slot, const char* name, int64_t rows, int64_t cols);
  // Multiplies by offset + the values of the file; a bias lies behind it in the slot's vector.
  void Norm(int slot, const char* name, int64_t cols, float offset = 0, bool bias = false);
  void Optional(const char* name);  // with its field: "lm_head.weight"

  std::vector<TensorRow> Take() { return std::move(rows_); }

 private:
  void Add(TensorRow row);

  const FamilySpec& family_;
  int layer_;
  int expert_ = -1;
  std::vector<TensorRow> rows_;
};

// The rows of the family's table for `config`. Optional ones among those of the model alone.
std::vector<TensorRow> ModelTensors(const ModelConfig& config);  // outside the layers
std::vector<TensorRow> LayerTensors(const ModelConfig& config, int layer);
std::vector<TensorRow> AllTensors(const ModelConfig& config);
// Those that a rank holds a part of: outside the layers, and in all of its own.
std::vector<TensorRow> ModelTensorsOf(const RankShard& shard);
std::vector<TensorRow> TensorsOf(const RankShard& shard);

// The rows (outputs) and columns (inputs) of the full tensor that `shard` owns.
struct TensorSlice {
  Range rows;
  Range cols;
};
TensorSlice SliceOf(const TensorRow& row, const RankShard& shard);

// Of a matrix alone.
LinearShape LinearShapeOf(const TensorRow& row, const RankShard& shard,
                          const WeightFormats& held_as);

// The slice as a tensor of `held_as`, with no rounding to panels; of quantised ones codes, f16
// scales and, with 4 bits, a byte for each zero.
int64_t StoredBytes(const TensorRow& row, const RankShard& shard, const WeightFormats& held_as);

}  // namespace bulkhead
