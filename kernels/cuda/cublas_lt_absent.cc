#include "kernels/cuda/gemm_library.h"

namespace bulkhead {

absl::StatusOr<std::string> CublasLtName() {
  return absl::UnimplementedError(
      "this build has no cuBLASLt: build it where the CUDA toolkit has cublasLt.h");
}

absl::StatusOr<std::unique_ptr<GemmLibrary>> NewCublasLt(CudaDriver&) {
  return CublasLtName().status();
}

}  // namespace bulkhead
