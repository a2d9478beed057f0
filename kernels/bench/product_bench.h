// Measures products in every format, with few and many rows.
#pragma once

#include "kernels/bench/kernels_bench.h"
#include "kernels/bench/machine.h"

namespace bulkhead {

void MeasureProducts(Machine& machine, const KernelsBenchOptions& options,
                     const std::function<void(const KernelResult&)>& on_result);

}  // namespace bulkhead
