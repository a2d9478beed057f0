// Rows of a matrix that the checkpoint holds in codes, as numbers (HeldAs::kDequantized).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "memory/matrix.h"
#include "shard/quantized_tensors.h"
#include "shard/tensor_row.h"

namespace bulkhead {

// What ReadDequantized needs to stage.
int64_t DequantizedStagingBytes(const QuantizedTensors& tensors, const TensorRow& row, Range rows,
                                Range cols);

// Outputs `rows` of inputs `cols` of the row's matrix, in f32: what memory/linear.h says that codes
// mean, to the bit. As QuantizedTensors::ReadRows counts outputs; of a matrix that is transposed in
// the file its own. Points into `staging`. DATA_LOSS as there.
absl::StatusOr<ConstMatrixView> ReadDequantized(const QuantizedTensors& tensors,
                                                const TensorRow& row, Range rows, Range cols,
                                                std::byte* staging);

}  // namespace bulkhead
