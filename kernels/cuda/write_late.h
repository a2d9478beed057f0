// Whole numbers that a kernel writes late: some microseconds after it has let the kernel behind it
// begin. Whatever follows it and does not wait for its end reads what was there before, which a
// check of a library with kernels of its own then sees.
#pragma once

#include <stdint.h>

#include "memory/cuda_kernel.h"

namespace bulkhead {

class CudaDriver;

namespace cuda {

// Few blocks, so that the next kernel finds room beside them.
inline constexpr int kWriteLateBlocks = 8;
inline constexpr int kWriteLateThreads = 256;
struct WriteLateParameters {
  float* out = nullptr;  // [count]: (first + i) % period + offset
  int64_t count = 0;
  int64_t first = 0;
  int period = 1;
  int offset = 0;
  int turns = 0;  // of a shuffle before each write; even
};
CudaKernelOf<WriteLateParameters> WriteLateKernel();

}  // namespace cuda

// Some 30 us late on a GPU of today.
void WriteLate(CudaDriver& driver, float* out, int64_t count, int64_t first, int period,
               int offset);

}  // namespace bulkhead
