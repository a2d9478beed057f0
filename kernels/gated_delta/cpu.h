// GatedDelta's part of the CPU backend's workspace.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "memory/ledger.h"

namespace bulkhead {

// For each of kMaxThreads threads. Null pointers if the allocator only plans.
struct CpuDeltaScratch {
  CpuDeltaScratch() = default;
  CpuDeltaScratch(const StepLimits& limits, BumpAllocator& allocator);

  // For one thread.
  struct OfThread {
    float* normed;   // [2 kStateBlock, key_dim] keys, then queries
    float* dots;     // [2 kStateBlock, kStateBlock] with the block's keys
    float* state;    // [2 kStateBlock, padded value_dim] with the state
    float* weighed;  // [key_dim, kStateBlock] keys
  };
  OfThread Of(int thread) const;

  float* floats = nullptr;
  int key_dim = 0;
  int64_t padded_value_dim = 0;
};

}  // namespace bulkhead
