#include "memory/cuda_runtime_driver.h"

namespace bulkhead {

absl::StatusOr<std::vector<CudaDeviceIdentity>> ListCudaDevices() {
  return absl::UnimplementedError(
      "this build has no CUDA: build it where nvcc is installed (-DBH_CUDA=ON insists)");
}

absl::StatusOr<std::unique_ptr<CudaDriver>> NewCudaRuntimeDriver(int) {
  return ListCudaDevices().status();
}

}  // namespace bulkhead
