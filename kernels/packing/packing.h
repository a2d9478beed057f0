// How rows of a weight become panels (kernels/matmul/op.h), and back to rows of f32.
#pragma once

#include <memory>

#include "kernels/packing/convert.h"
#include "kernels/packing/packing_kernels.h"
#include "kernels/packing/panel_format.h"
#include "memory/linear.h"

namespace bulkhead {

// Bytes of a packed weight: N padded to whole panels.
int64_t PanelBytes(const LinearShape& shape);

// Fills `linear.packed`, fastest if whole panels are put at once. Works on the thread that calls
// PutRows.
std::unique_ptr<WeightSink> NewPanelSink(const Linear& linear, const ConvertKernels& convert,
                                         const PackingKernels& packing);

// out [K] = row `row` of the weight, each + 0.0.
void UnpackRow(const Linear& linear, int64_t row, float* out);

}  // namespace bulkhead
