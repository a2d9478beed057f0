// How near the kernels come to a GPU: products and attention of the Llama 3 8B shape, beside the
// library's products where there is one, against ceilings that are measured first. What is measured
// runs as a CUDA graph, as decoding does.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "kernels/bench/kernels_bench.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

// Calls `on_result` for each measurement as it comes. Of the options filter and quick count; the
// names begin with launch/, product/, library/ (cuBLASLt's, where `gemm_library`) or attend/.
absl::Status MeasureGpuKernels(CudaDriver& driver, bool gemm_library,
                               const KernelsBenchOptions& options,
                               const std::function<void(const KernelResult&)>& on_result);

}  // namespace bulkhead
