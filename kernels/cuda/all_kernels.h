// Every kernel that the CUDA backend may launch: all are brought onto the device before its memory
// is measured, since code that is loaded later takes memory later.
#pragma once

#include <vector>

#include "memory/cuda_kernel.h"

namespace bulkhead::cuda {

std::vector<CudaKernel> AllKernels();  // each once

}  // namespace bulkhead::cuda
