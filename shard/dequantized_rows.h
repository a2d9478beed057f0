// Rows of a matrix that the checkpoint holds in codes, as f32 (HeldAs::kDequantized).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "memory/matrix.h"
#include "shard/quantized_tensors.h"
#include "shard/tensor_row.h"

namespace bulkhead {

// Staging bytes that ReadDequantized needs.
int64_t DequantizedStagingBytes(const QuantizedTensors& tensors, const TensorRow& row, Range rows,
                                Range cols);

// Outputs `rows` and inputs `cols` of the row's matrix, in f32: the exact values of the codes in
// memory/linear.h. Outputs count as in QuantizedTensors::ReadRows, or are the row's own if the file
// has the matrix transposed. Points into `staging`. DATA_LOSS as there.
absl::StatusOr<ConstMatrixView> ReadDequantized(const QuantizedTensors& tensors,
                                                const TensorRow& row, Range rows, Range cols,
                                                std::byte* staging);

}  // namespace bulkhead
