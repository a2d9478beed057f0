// Measures attention over a cache of each format, in the same rounds.
#pragma once

#include "kernels/bench/kernels_bench.h"
#include "kernels/bench/machine.h"

namespace bulkhead {

void MeasureAttention(Machine& machine, const KernelsBenchOptions& options,
                      const std::function<void(const KernelResult&)>& on_result);

}  // namespace bulkhead
