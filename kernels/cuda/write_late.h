// Integers that a kernel writes late: some microseconds after it has let the next kernel begin. A
// kernel that follows and does not wait for its end reads the old values, which a check of a
// library with its own kernels detects.
#pragma once

#include <stdint.h>

#include "memory/cuda_kernel.h"

namespace bulkhead {

class CudaDriver;

namespace cuda {

// Few blocks, so that the next kernel has room to run beside them.
inline constexpr int kWriteLateBlocks = 8;
inline constexpr int kWriteLateThreads = 256;
// Shuffles before each write: fewer beyond 65,536 numbers, so that no count takes much longer.
constexpr int WriteLateTurns(int64_t count) {
  constexpr int64_t kMost = 2000;  // of some 25 cycles each
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

// Up to 65,536 numbers are some 30 us late on current GPUs, more numbers up to a millisecond.
void WriteLate(CudaDriver& driver, float* out, int64_t count, int64_t first, int period,
               int offset);

}  // namespace bulkhead
