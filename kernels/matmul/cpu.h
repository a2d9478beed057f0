// What MatMul takes of the CPU backend's workspace.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/matmul/int8.h"
#include "memory/ledger.h"

namespace bulkhead {

// Null pointers where there is no memory behind the allocator.
struct CpuMatMulScratch {
  CpuMatMulScratch() = default;
  CpuMatMulScratch(const StepLimits& limits, BumpAllocator& allocator);
  float* Of(int thread) const { return floats + thread * thread_floats; }

  float* floats = nullptr;  // blocks of x and unfinished sums, for each of kMaxThreads threads
  int64_t thread_floats = 0;
  int max_rows = 0;
  // Quantised inputs: the most that one product has.
  int64_t max_inputs = 0;
  QuantizedInputs inputs{};
};

}  // namespace bulkhead
