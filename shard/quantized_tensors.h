// The tensors of a weight that a checkpoint holds in 4 bits (AWQ "gemm", GPTQ), and rows of it as
// codes, scales and zeros. Layouts:
//   AWQ   qweight i32 [in, out / 8]: nibble j of a word is output 8w + (0, 2, 4, 6, 1, 3, 5, 7)[j]
//         qzeros  i32 [in / group, out / 8], likewise
//   GPTQ  qweight i32 [in / 8, out]: nibble j is input 8w + j
//         qzeros  i32 [in / group, out / 8]: nibble j is output 8w + j, and holds zero - 1
//         g_idx   i32 [in]: the group of each input
//   both  scales  f16 [in / group, out]
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "memory/linear.h"
#include "shard/model_config.h"
#include "shard/tensor_index.h"
#include "shard/tensor_row.h"

namespace bulkhead {

struct QuantizedTensors {
  LocatedTensor qweight;
  LocatedTensor qzeros;
  LocatedTensor scales;
  LocatedTensor g_idx;  // GPTQ; its entry is null where the checkpoint has none
  QuantizationConfig config;
  int64_t outputs = 0;
  int64_t inputs = 0;

  bool is_awq() const { return config.method == QuantizationConfig::Method::kAwq; }
  // The groups that `cols` touch; with act order all.
  Range GroupsOf(Range cols) const;
  // What ReadRows needs to stage `rows` outputs of `cols`, and how much of that it reads.
  int64_t StagingBytes(Range cols, int64_t rows) const;
  int64_t ReadBytes(Range cols, int64_t rows) const;

  // Outputs `rows` of inputs `cols`; the result points into `staging`. DATA_LOSS when the file
  // ends.
  absl::StatusOr<QuantizedRows> ReadRows(Range rows, Range cols, std::byte* staging) const;
  // The group of each input of `cols`; empty without act order. DATA_LOSS for an index that is not
  // one, or that is not ascending where desc_act says so.
  absl::StatusOr<std::vector<int32_t>> ReadGroupIndex(Range cols) const;
};

// Whether the checkpoint holds this tensor so.
bool IsHeldQuantized(const TensorRow& row, const ModelConfig& config);

// With the shapes and number formats that `config` demands. NOT_FOUND, INVALID_ARGUMENT or
// UNIMPLEMENTED naming file and tensor.
absl::StatusOr<QuantizedTensors> FindQuantized(const TensorIndex& index, const TensorRow& row,
                                               const ModelConfig& config);

// The names of its tensors, g_idx last.
std::vector<std::string> QuantizedNamesOf(const TensorRow& row, const ModelConfig& config);

}  // namespace bulkhead
