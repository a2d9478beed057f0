// A fake NCCL library, over host memory and ranks that are threads. In non-blocking mode,
// operations complete some queries later, and collectives are refused: each would start a thread.
// The test controls where its memory comes from, how work is enqueued, and what fails.
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
  kRefusesRank1,    // rank 1 fails at once, so that the others stay "in progress"
  kNeverSums,       // sums do not end, as if a rank did not join them
  kSumsWrongly,     // one element of a sum of more than 1000
  kFailsLater,      // an asynchronous error, once `fail` is set
  kRefusesWindows,  // registration fails
  kStartsEarly,     // sums over a window do not wait for the preceding kernel, as in 2.28 to 2.30.6
  kStartsLargeSumsEarly,  // the same, of more than 65,536 numbers
};

struct FakeNcclRange {
  const void* begin = nullptr;
  int64_t bytes = 0;
};

struct FakeNcclControls {
  std::atomic<FakeNcclFault> fault{FakeNcclFault::kNone};
  std::atomic<bool> fail{false};
  std::atomic<int> version{23007};
  std::atomic<int> windows{0};           // registered now
  std::atomic<int> communicators{0};     // neither destroyed nor aborted
  std::atomic<int64_t> summed_bytes{0};  // that ranks gave to sums
  void* (*allocate)(size_t bytes) = nullptr;
  void (*free)(void* memory) = nullptr;
  // Enqueues `work`, which uses this memory, on `stream`; `early`: it may overtake the last
  // enqueued kernel.
  void (*enqueue)(void* stream, const std::vector<FakeNcclRange>& uses, std::function<void()> work,
                  bool early) = nullptr;
  void (*enqueue_endless)(void* stream) = nullptr;
};

}  // namespace bulkhead

// The library's single instance.
extern "C" bulkhead::FakeNcclControls* fake_nccl_controls();
