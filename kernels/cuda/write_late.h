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
// Of a shuffle before each write: fewer beyond 65,536 numbers, so that no count takes much longer.
constexpr int WriteLateTurns(int64_t count) {
  constexpr int64_t kMost = 2000;  // of some 25 cycles
  constexpr int64_t kWithMost = 1 << 16;
  const int64_t turns = count <= kWithMost ? kMost : kMost * kWithMost / count;
  return static_cast<int>(turns < 2 ? 2 : turns / 2 * 2);
}
struct WriteLateParameters {
  float* out = nullptr;  // [count]: (first + i) % period + offset
  int64_t count = 0;
  int64_t first = 0;
  int period = 1;
  int offset = 0;
  int turns = 0;  // even
};
CudaKernelOf<WriteLateParameters> WriteLateKernel();

}  // namespace cuda

// Up to 65,536 numbers some 30 us late on a GPU of today, beyond the last of them a millisecond.
void WriteLate(CudaDriver& driver, float* out, int64_t count, int64_t first, int period,
               int offset);

}  // namespace bulkhead
