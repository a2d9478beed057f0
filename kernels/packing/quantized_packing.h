// How rows of a quantised weight become panels (kernels/packing/quantized_layout.h), and back.
#pragma once

#include <memory>

#include "kernels/packing/convert.h"
#include "kernels/packing/packing_kernels.h"
#include "kernels/packing/quantized_layout.h"
#include "memory/linear.h"

namespace bulkhead {

// Bytes of a packed weight, header included.
int64_t QuantizedPanelBytes(const LinearShape& shape);

// Writes the header into `linear.packed`, and gives the sink that fills the rest.
std::unique_ptr<WeightSink> NewQuantizedPanelSink(const Linear& linear,
                                                  const ConvertKernels& convert,
                                                  const PackingKernels& packing);

// The contents of the header; cells are the packed weight's.
QuantizedPanels QuantizedPanelsOf(const Linear& linear);

// out [K] = row `row` of the weight, each + 0.0.
void UnpackQuantizedRow(const Linear& linear, int64_t row, float* out);

// The maximum bytes of a row of quantised inputs, and the maximum cells, of any weight of `inputs`
// inputs in groups of `min_group` or more.
int64_t MaxInputBytes(int64_t inputs, int min_group);
int64_t MaxCells(int64_t inputs, int min_group);

}  // namespace bulkhead
