// The CUDA kernel of AddResidual and AddBias.
#pragma once

#include "kernels/cuda/parameters.h"
#include "memory/cuda_kernel.h"

namespace bulkhead::cuda {

// x += factor * (addend (+ bias if there is one)).
struct AddParameters {
  ConstRows addend;  // stride 0: one row for all
  const float* bias = nullptr;
  float factor = 1;
  int width = 0;
  Rows x;
};
CudaKernelOf<AddParameters> AddKernel();

}  // namespace bulkhead::cuda
