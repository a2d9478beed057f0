// The units in which a checkpoint is read and passed to the backend's sinks: blocks of rows of the
// tensors that a rank needs a part of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "shard/dequantized_rows.h"
#include "shard/quantized_tensors.h"
#include "shard/tensor_index.h"
#include "shard/weight_loader.h"

namespace bulkhead {

// The part of its tensor that one target needs.
struct WeightPart {
  Checkpoint::Target target;
  LocatedTensor tensor;
  DType dtype = DType::kF32;
  TensorSlice slice;
  int64_t full_cols = 0;
  bool reads_segments = false;  // reads only the owned columns, row by row
  // If the checkpoint holds it in codes; `tensor` is then the codes' tensor.
  std::optional<QuantizedTensors> quantized;

  bool is_transposed() const { return target.row.is_transposed; }
  bool is_dequantized() const { return target.row.held_as == HeldAs::kDequantized; }
  int64_t QuantizedStagingBytes(Range rows) const {
    return is_dequantized() ? DequantizedStagingBytes(*quantized, target.row, rows, slice.cols)
                            : quantized->StagingBytes(slice.cols, rows.size());
  }
  int64_t QuantizedReadBytes(Range rows) const {
    return IsTransposedInCodes(target.row) ? quantized->ReadBytes(rows, slice.cols.size())
                                           : quantized->ReadBytes(slice.cols, rows.size());
  }
  int64_t BytesPerRow() const {
    return (reads_segments ? slice.cols.size() : full_cols) * DTypeBytes(dtype);
  }
};

struct WeightBlock {
  const WeightPart* part = nullptr;
  Range rows;      // of the full weight
  int weight = 0;  // index in LoadRun
  // Bytes read from the file and kept in staging memory.
  int64_t bytes() const {
    return part->quantized.has_value() ? part->QuantizedReadBytes(rows)
                                       : rows.size() * part->BytesPerRow();
  }
  int64_t staging_bytes() const {
    if (part->quantized.has_value()) return part->QuantizedStagingBytes(rows);
    return part->is_transposed() ? 2 * bytes() : bytes();
  }
};

// The blocks of all parts, in order. The parts must outlive them.
std::vector<WeightBlock> BlocksOf(const std::vector<WeightPart>& parts);

// Reads the block into `staging` (WeightBlock::staging_bytes), and from there into the sink or
// vector. DATA_LOSS with the tensor's name.
absl::Status LoadBlock(const WeightBlock& block, std::byte* staging);

}  // namespace bulkhead
