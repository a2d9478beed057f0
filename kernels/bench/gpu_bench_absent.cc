// A build without CUDA has no kernels to measure on a GPU.
#include "absl/status/status.h"
#include "kernels/bench/gpu_bench.h"

namespace bulkhead {

absl::Status MeasureGpuKernels(CudaDriver&, bool, const KernelsBenchOptions&,
                               const std::function<void(const KernelResult&)>&) {
  return absl::UnimplementedError("this build has no CUDA kernels; use --device cpu");
}

}  // namespace bulkhead
