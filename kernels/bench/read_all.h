// Reads memory as fast as possible: the ceiling for reading weights or a cache.
#pragma once

#include <stdint.h>

#include "kernels/cuda/parameters.h"
#include "memory/cuda_kernel.h"

namespace bulkhead::cuda {

// sums[thread] = XOR of all words that the thread read.
struct ReadAllParameters {
  const unsigned char* from = nullptr;
  int64_t num_chunks = 0;    // of 16 bytes
  uint32_t* sums = nullptr;  // [blocks][kRowThreads]
};
CudaKernelOf<ReadAllParameters> ReadAllKernel();  // grid {any}

}  // namespace bulkhead::cuda
