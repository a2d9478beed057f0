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
// kFullKvHeads: likewise the KV heads of layers with full_heads (shard/model_config.h).
// kExpertMlp, kSharedMlp: likewise the columns of an expert, and of the shared one.
// kDeltaKeys, kDeltaValues: likewise the key and value heads of linear attention.
// kExperts, kEachHead, kEachDeltaKey, kEachDeltaValue: a tensor of one expert, or of one head,
// which the rank with that expert or head has whole.
enum class Split {
  kWhole,
  kHeads,
  kKvHeads,
  kFullKvHeads,
  kMlp,
  kExpertMlp,
  kSharedMlp,
  kVocab,
  kDeltaKeys,
  kDeltaValues,
  kExperts,
  kEachHead,
  kEachDeltaKey,
  kEachDeltaValue
};

// In WeightFormats' layers, its tables, and in f32. kKeptMatrix: a layer's matrix that a
// quantised checkpoint does not quantise, in the format of the tables. kDequantized: one that it
// quantises, also in that format: of a head, at whose borders groups and blocks do not end.
// kAdapterMatrix: in the format of the layers, or bf16 if they are quantised, as GPUs have inputs.
enum class HeldAs {
  kLayerMatrix,
  kKeptMatrix,
  kDequantized,
  kTable,
  kAdapterMatrix,
  kF32Matrix,
  kVector
};

struct TensorRow {
  const char* prefix = "";  // FamilySpec's
  const char* model_prefix = "";
  int layer = -1;          // -1 outside the layers
  std::string name;        // of the module: "mlp.up_proj"
  const char* field = "";  // "weight"
  // Name (with `field`) of the tensor to use if the checkpoint lacks this one's; empty: none.
  std::string shared_name = {};
  // Whose tensor it is; a slot has a matrix of its own for each expert, and for each head unless
  // they are joined.
  int expert = -1;
  int head = -1;
  bool joins_heads = false;
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
  // Where all experts share one tensor of the file: how many they are, its first dimension. 0: this
  // expert's tensor is its own.
  int file_experts = 0;
  // A vector's file has a kernel of a convolution for each channel: [cols / taps, 1, taps]. 0: not.
  int file_taps = 0;
  // In the file: inputs, then outputs. The first of the file's inputs that is this row's, and how
  // many a tensor (of an expert where they share it) has; 0: it has this row's alone.
  bool is_transposed = false;
  int64_t file_input_begin = 0;
  int64_t file_inputs = 0;
  float value_offset = 0;  // added to a vector's values
  // A vector of the scales of an fp8 cache's keys or values (shard/kv_scales.h): it may have other
  // names, be one number for all heads, or be missing.
  bool is_kv_scale = false;
  // May be in the checkpoint, and is not held. Its name may have wildcards (fnmatch).
  bool optional = false;

  bool is_vector() const { return held_as == HeldAs::kVector; }
  int member() const { return head >= 0 && !joins_heads ? head : expert; }
  // Rows (of a vector elements) of the file's tensor.
  int64_t FileSize() const { return file_size > 0 ? file_size : is_vector() ? cols : rows; }
  std::string Name() const;    // "model.layers.3.mlp.up_proj.weight"
  std::string Module() const;  // without the field
  // As the checkpoint has it: [rows, cols]; [cols] for a vector; after the experts, if they share
  // it.
  std::vector<int64_t> Shape() const;
};

// Slots of what a model has outside its layers.
// From kPerLayerEmbedding on: on the first stage; three of ModelConfig::per_layer_input_size, and
// those of an MTP layer.
enum ModelSlot {
  kEmbedding,
  kFinalNorm,
  kLmHead,
  kPerLayerEmbedding,
  kPerLayerProjection,
  kPerLayerNorm,
  kMtpEmbeddingNorm,
  kMtpHiddenNorm,
  kMtpProjection
};

// Collects the rows of a layer, or of what is outside them; each call is a module of the model.
class TensorTable {
 public:
  explicit TensorTable(const FamilySpec& family, int layer = -1, int num_experts = 0)
      : family_(family), layer_(layer), num_experts_(num_experts) {}

  // Rows from here on are of this expert; -1: of none.
  void SetExpert(int expert) { expert_ = expert; }
  // Weight [rows, cols] and bias of a product whose outputs are split.
  void ColumnParallel(int slot, const std::string& name, int64_t rows, int64_t cols, Split split,
                      bool bias);
  // Of one whose inputs are split: ranks have partial sums. Every rank has the whole bias, and adds
  // it to the sum.
  void RowParallel(int slot, const std::string& name, int64_t rows, int64_t cols, Split split,
                   bool bias);
  // Column-parallel parts that are one tensor of the file, one after the other.
  struct Part {
    int64_t rows;
    Split split;
  };
  void FusedColumnParallel(int slot, const char* name, absl::Span<const Part> parts, int64_t cols,
                           bool bias);
  // A part of the tensor that all experts share, without a field of its own in its name: rows
  // [begin, begin + rows) of `size` of this expert.
  struct ExpertPart {
    int64_t begin;
    int64_t rows;
    int64_t size;
    bool is_transposed = false;
  };
  void FusedExperts(int slot, const std::string& name, ExpertPart part, int64_t cols,
                    Split output_split, Split input_split);
  void FusedExpertBias(int slot, const std::string& name, int64_t size, Split split);
  // Rows [begin, begin + rows) of `size` of a tensor of all heads: the matrix of this head.
  // Transposed: they are its inputs, of `cols` outputs.
  struct HeadPart {
    int head;
    int64_t begin;
    int64_t rows;
    int64_t size;
    bool is_transposed = false;
  };
  void OfHead(int slot, const char* name, HeadPart part, int64_t cols);
  // The same outputs, in one matrix with the slot's others, of heads that `split` says which.
  void JoinedHead(int slot, const char* name, HeadPart part, int64_t cols, Split split);
  // The kernels of a convolution, of channels that are split in parts.
  void Convolution(int slot, const char* name, absl::Span<const Part> parts, int taps);
  // A matrix that every rank has whole, in f32.
  void Replicated(int slot, const char* name, int64_t rows, int64_t cols, bool bias = false);
  // One in the format of the tables.
  void WholeMatrix(int slot, const std::string& name, int64_t rows, int64_t cols);
  // A table of the vocabulary.
  void VocabParallel(int slot, const std::string& name, int64_t rows, int64_t cols,
                     const std::string& shared_name = "");
  // Multiplies by offset + the values of the file; a bias lies after it in the slot's vector.
  void Norm(int slot, const std::string& name, int64_t cols, float offset = 0, bool bias = false);
  void Optional(const std::string& name);  // with its field: "lm_head.weight"
  void Vector(int slot, const std::string& name, int64_t cols, Split split,
              float offset = 0);  // likewise
  // Scales of a layer's cached keys and values, if the checkpoint has them; split the same way.
  void KvScales(int slot, const char* name, int64_t cols, Split split);

  int layer() const { return layer_; }

  std::vector<TensorRow> Take() { return std::move(rows_); }

 private:
  void Add(TensorRow row);

  const FamilySpec& family_;
  int layer_;
  int num_experts_;
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

// The shape of a row that is a matrix.
LinearShape LinearShapeOf(const TensorRow& row, const RankShard& shard,
                          const WeightFormats& held_as);

// The slice as a tensor of `held_as`, with no rounding to panels; of quantised ones codes, scales
// and, of int4, a byte for each zero.
int64_t StoredBytes(const TensorRow& row, const RankShard& shard, const WeightFormats& held_as);

}  // namespace bulkhead
