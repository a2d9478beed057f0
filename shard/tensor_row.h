// TensorRow: a tensor of a model, as declared in its family's file, with the numbers of one config.
// The expected checkpoint, slices, shapes, bytes, layout and loading follow from the rows.
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

// Which range of a rank (shard_plan.h) a dimension is split by. A dimension of n elements has n / H
// per head, n / F per MLP column, and so on. kFullKvHeads: KV heads of layers with full_heads
// (shard/model_config.h). kExpertMlp, kSharedMlp: columns of an expert, and of the shared one.
// kDeltaKeys, kDeltaValues: key and value heads of linear attention. kExperts, kEachHead,
// kEachDeltaKey, kEachDeltaValue: a tensor of one expert or head, held whole by the ranks that have
// it.
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

// Formats are those of WeightFormats: layers, tables, or f32. kKeptMatrix: a layer's matrix that a
// quantised checkpoint leaves unquantised, in the tables' format. kDequantized: a quantised matrix
// of one head, whose borders are not group borders, held in the tables' format. kAdapterMatrix: in
// the layers' format, or bf16 (the GPUs' input format) if they are quantised.
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
  // The expert or head it belongs to; a slot has one matrix per expert, and per head unless they
  // are joined.
  int expert = -1;
  int head = -1;
  bool joins_heads = false;
  // Where the forward pass finds it: rows of one slot follow one another, matrices in one matrix,
  // vectors (their biases) in one vector.
  int slot = 0;
  HeldAs held_as = HeldAs::kVector;
  int64_t rows = 1;                    // outputs; 1 for a vector
  int64_t cols = 0;                    // inputs; a vector's elements
  Split output_split = Split::kWhole;  // also a vector's elements
  Split input_split = Split::kWhole;
  // If several rows share one tensor of the file: the first of its rows (a vector's elements) that
  // belongs to this row, and the tensor's number of rows. 0: not shared.
  int64_t file_begin = 0;
  int64_t file_size = 0;
  // If all experts share one tensor of the file: the number of experts, its first dimension. 0: not
  // shared.
  int file_experts = 0;
  // The file's tensor holds convolution kernels, one per channel: [cols / taps, 1, taps]. 0: not.
  int file_taps = 0;
  // The file has inputs before outputs. file_input_begin: this row's first input in the file;
  // file_inputs: inputs of the tensor (of one expert if they share it); 0: only this row's.
  bool is_transposed = false;
  int64_t file_input_begin = 0;
  int64_t file_inputs = 0;
  float value_offset = 0;  // added to a vector's values
  // A vector of scales of an fp8 cache's keys or values (shard/kv_scales.h): it may have other
  // names, be one number for all heads, or be missing.
  bool is_kv_scale = false;
  // Allowed in the checkpoint but not loaded. Its name may have wildcards (fnmatch).
  bool optional = false;

  bool is_vector() const { return held_as == HeldAs::kVector; }
  int member() const { return head >= 0 && !joins_heads ? head : expert; }
  // Rows (a vector's elements) of the file's tensor.
  int64_t FileSize() const { return file_size > 0 ? file_size : is_vector() ? cols : rows; }
  std::string Name() const;    // "model.layers.3.mlp.up_proj.weight"
  std::string Module() const;  // without the field
  // Shape in the checkpoint: [rows, cols]; [cols] for a vector; preceded by the experts if they
  // share it.
  std::vector<int64_t> Shape() const;
};

// Slots of a model's tensors outside its layers. From kPerLayerEmbedding on, all on the first
// stage: three of ModelConfig::per_layer_input_size, and those of an MTP layer.
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

// Collects the rows of a layer, or those outside the layers; each call adds a module.
class TensorTable {
 public:
  explicit TensorTable(const FamilySpec& family, int layer = -1, int num_experts = 0)
      : family_(family), layer_(layer), num_experts_(num_experts) {}

  // The following rows belong to this expert; -1: to none.
  void SetExpert(int expert) { expert_ = expert; }
  // Weight [rows, cols] and bias of a product whose outputs are split.
  void ColumnParallel(int slot, const std::string& name, int64_t rows, int64_t cols, Split split,
                      bool bias);
  // A product whose inputs are split: ranks have partial sums. Every rank has the whole bias and
  // adds it to the sum.
  void RowParallel(int slot, const std::string& name, int64_t rows, int64_t cols, Split split,
                   bool bias);
  // Column-parallel parts that are stored in one tensor of the file, one after the other.
  struct Part {
    int64_t rows;
    Split split;
  };
  void FusedColumnParallel(int slot, const char* name, absl::Span<const Part> parts, int64_t cols,
                           bool bias);
  // A part of a tensor that all experts share and whose name has no field: rows [begin, begin +
  // rows) of this expert's `size`.
  struct ExpertPart {
    int64_t begin;
    int64_t rows;
    int64_t size;
    bool is_transposed = false;
  };
  void FusedExperts(int slot, const std::string& name, ExpertPart part, int64_t cols,
                    Split output_split, Split input_split);
  void FusedExpertBias(int slot, const std::string& name, int64_t size, Split split);
  // The matrix of one head in a tensor of all heads: rows [begin, begin + rows) of `size`.
  // Transposed: these rows are its inputs, and it has `cols` outputs.
  struct HeadPart {
    int head;
    int64_t begin;
    int64_t rows;
    int64_t size;
    bool is_transposed = false;
  };
  void OfHead(int slot, const char* name, HeadPart part, int64_t cols);
  // The same, but the heads of `split` are joined in the slot's one matrix.
  void JoinedHead(int slot, const char* name, HeadPart part, int64_t cols, Split split);
  // Convolution kernels whose channels are split by parts.
  void Convolution(int slot, const char* name, absl::Span<const Part> parts, int taps);
  // A matrix in f32 that every rank holds whole.
  void Replicated(int slot, const char* name, int64_t rows, int64_t cols, bool bias = false);
  // The same in the format of the tables.
  void WholeMatrix(int slot, const std::string& name, int64_t rows, int64_t cols);
  // A table split by vocabulary.
  void VocabParallel(int slot, const std::string& name, int64_t rows, int64_t cols,
                     const std::string& shared_name = "");
  // Multiplies by offset + the file's values; a bias follows it in the slot's vector.
  void Norm(int slot, const std::string& name, int64_t cols, float offset = 0, bool bias = false);
  void Optional(const std::string& name);  // with its field: "lm_head.weight"
  void Vector(int slot, const std::string& name, int64_t cols, Split split,
              float offset = 0);  // offset as for Norm
  // Scales of a layer's cached keys and values, if the checkpoint has them; split like these.
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

// The rows of the family's table for `config`. Optional ones are in ModelTensors only.
std::vector<TensorRow> ModelTensors(const ModelConfig& config);  // outside the layers
std::vector<TensorRow> LayerTensors(const ModelConfig& config, int layer);
std::vector<TensorRow> AllTensors(const ModelConfig& config);
// The rows that a rank holds a part of: outside the layers, and in all of its layers.
std::vector<TensorRow> ModelTensorsOf(const RankShard& shard);
std::vector<TensorRow> TensorsOf(const RankShard& shard);

// The rows (outputs) and columns (inputs) of the full tensor that `shard` owns.
struct TensorSlice {
  Range rows;
  Range cols;
};
TensorSlice SliceOf(const TensorRow& row, const RankShard& shard);

// The shape of a matrix row.
LinearShape LinearShapeOf(const TensorRow& row, const RankShard& shard,
                          const WeightFormats& held_as);

// Bytes of the slice in `held_as`, without padding to panels; quantised: codes, scales and, for
// int4, a byte per zero.
int64_t StoredBytes(const TensorRow& row, const RankShard& shard, const WeightFormats& held_as);

}  // namespace bulkhead
