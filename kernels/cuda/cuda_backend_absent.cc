#include "kernels/cuda/cuda_backend.h"
#include "memory/check.h"

namespace bulkhead {

std::unique_ptr<Backend> NewCudaBackend(Device&, CudaDriver&, std::unique_ptr<GemmLibrary>) {
  BH_CHECK(false);  // there is no CudaDriver in this build
}

}  // namespace bulkhead
