#include "kernels/cuda/cuda_backend.h"
#include "memory/check.h"

namespace bulkhead {

absl::Status CheckCudaFormats(WeightFormat, KvFormat, int) {
  return absl::UnimplementedError("this build has no CUDA: use --device cpu");
}

std::unique_ptr<Backend> NewCudaBackend(Device&, CudaDriver&, std::unique_ptr<GemmLibrary>) {
  BH_CHECK(false);  // there is no CudaDriver in this build, and no format passes
}

}  // namespace bulkhead
