// How close the kernels come to a GPU's ceilings: products and attention of the Llama 3 8B shape,
// compared with the library's products if there is one and with ceilings measured first. Everything
// measured runs as a CUDA graph, as in decoding.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "kernels/bench/kernels_bench.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

// Calls `on_result` after each measurement. Uses the options filter and quick; names begin with
// launch/, product/, library/ (cuBLASLt's, if `gemm_library`) or attend/.
absl::Status MeasureGpuKernels(CudaDriver& driver, bool gemm_library,
                               const KernelsBenchOptions& options,
                               const std::function<void(const KernelResult&)>& on_result);

}  // namespace bulkhead
