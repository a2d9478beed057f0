// Every kernel that the CUDA backend may launch: all are loaded onto the device before its memory
// is measured, since code loaded later would take memory later.
#pragma once

#include <vector>

#include "memory/cuda_kernel.h"

namespace bulkhead::cuda {

// All linked kernels; a kernel may be listed more than once.
inline std::vector<CudaKernel>& RegisteredKernels() {
  static std::vector<CudaKernel> kernels;
  return kernels;
}

// Next to the kernels' definition, one object of this for all of them.
struct KernelRegistration {
  template <typename... Parameters>
  explicit KernelRegistration(const CudaKernelOf<Parameters>&... kernels) {
    (RegisteredKernels().push_back(kernels.kernel), ...);
  }
  explicit KernelRegistration(const std::vector<CudaKernel>& kernels) {
    for (const CudaKernel& kernel : kernels) RegisteredKernels().push_back(kernel);
  }
};

}  // namespace bulkhead::cuda
