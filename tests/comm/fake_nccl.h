// A library that answers as NCCL does, over host memory and ranks that are threads. Without
// blocking, what was begun is done some questions later, and collectives are refused: each would
// cost a thread. The test says where its memory comes from, how work comes into a rank's queue, and
// what goes wrong.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace bulkhead {

enum class FakeNcclFault : int {
  kNone,
  kNeverConnects,   // ranks stay "in progress"
  kNeverSplits,     // the same, of the second communicator
  kSumsWrongly,     // one element of a sum of more than 1000
  kFailsLater,      // an asynchronous error, once `fail` is set
  kRefusesWindows,  // registering fails
  kStartsEarly,  // sums over a window do not wait for the kernel before them, as in 2.28 to 2.30.6
};

struct FakeNcclRange {
  const void* begin = nullptr;
  int64_t bytes = 0;
};

struct FakeNcclControls {
  std::atomic<FakeNcclFault> fault{FakeNcclFault::kNone};
  std::atomic<bool> fail{false};
  std::atomic<int> version{23007};
  std::atomic<int> windows{0};        // registered now
  std::atomic<int> communicators{0};  // neither destroyed nor aborted
  void* (*allocate)(size_t bytes) = nullptr;
  void (*free)(void* memory) = nullptr;
  // Puts `work`, which uses this memory, into the queue behind `stream`; `early`: it may overtake
  // the kernel that was enqueued last.
  void (*enqueue)(void* stream, const std::vector<FakeNcclRange>& uses, std::function<void()> work,
                  bool early) = nullptr;
};

}  // namespace bulkhead

// The library's one.
extern "C" bulkhead::FakeNcclControls* fake_nccl_controls();
