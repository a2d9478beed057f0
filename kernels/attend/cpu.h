// Attention's part of the CPU backend's workspace.
#pragma once

#include <cstdint>

#include "kernels/attend/attention_plan.h"
#include "memory/ledger.h"

namespace bulkhead {

// Null pointers if the allocator only plans. Depends only on the arguments.
struct CpuAttendScratch {
  CpuAttendScratch() = default;
  CpuAttendScratch(const StepLimits& limits, const HeadLayout& heads, BumpAllocator& allocator);

  AttentionSizes sizes;
  int max_tokens = 0;
  int max_seqs = 0;
  int num_heads = 0;
  int value_dim = 0;
  AttentionUnit* tiles = nullptr;  // of a step
  float* scratch = nullptr;        // for each of kMaxThreads threads
  float* slots = nullptr;          // partial results of contexts that several threads share
};

}  // namespace bulkhead
