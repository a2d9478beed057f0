// The work of decode attention in a step, made on the host: one item for each split of the cache
// that a sequence of one token has, the longest first. Blocks take items in turn, so that a grid of
// a fixed size is evenly busy whatever lengths the sequences have.
#pragma once

#include <cstdint>

#include "kernels/attend/cuda_kernels.h"
#include "kernels/backend.h"

namespace bulkhead {

// What lies in memory: the number of items, then the items.
struct AttendList {
  // Room for any step.
  static int64_t Bytes(int max_num_seqs, int splits) {
    return static_cast<int64_t>(sizeof(cuda::AttendItem)) * (1 + int64_t{max_num_seqs} * splits);
  }
  static const cuda::AttendItem* ItemsOf(const int32_t* list) {
    return reinterpret_cast<const cuda::AttendItem*>(list) + 1;
  }

  // Writes the list of a step whose index is in host memory; returns the bytes that count.
  static int64_t Fill(const StepIndex& host_index, int32_t* list);
};

}  // namespace bulkhead
