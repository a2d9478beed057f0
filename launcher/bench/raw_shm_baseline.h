// RawShmBaseline: the minimum time for two processes to add two arrays through shared memory: each
// writes its part, sets a flag, adds, sets a flag. Everything beyond that is a collective's own
// cost. Does not support abort: a rank that waits for a dead peer is ended by its watchdog.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/shm/shared_memory.h"

namespace bulkhead {

class RawShmBaseline {
 public:
  // Bytes that `ranks` ranks must share for sums of at most `max_bytes`; zeroed at first.
  static int64_t Bytes(int ranks, int64_t max_bytes);

  RawShmBaseline(SharedMemory memory, int ranks, int64_t max_bytes);

  enum class Split {
    kWhole,  // both add the whole array
    kHalf,   // each adds one half, for both
  };
  // The sum of `part` of this rank and that of `peer`, who makes the same call: `count` floats,
  // valid until the next call. `whole` has `count` floats, private to this rank.
  const float* Sum(int rank, int peer, const float* part, int64_t count, Split split, float* whole);

 private:
  struct alignas(64) Flag {
    std::atomic<uint64_t> value;  // barriers that one rank has entered with one other
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  void Barrier(int rank, int peer);
  Flag& flag(int rank, int peer) { return flags_[rank * ranks_ + peer]; }
  float* slot(int rank) { return slots_ + rank * stride_; }

  SharedMemory memory_;
  int64_t stride_;  // floats of a slot
  int ranks_;
  Flag* flags_;    // [ranks][ranks]: set by the first for the second
  float* slots_;   // [ranks][stride_]
  float* result_;  // [stride_], of the measured pair
};

}  // namespace bulkhead
