// A library that answers as NCCL does without blocking, over host memory and ranks that are
// threads: what is enqueued is done at once, and said to be done some questions later. The test
// says where its memory comes from and what goes wrong.
#pragma once

#include <atomic>
#include <cstddef>

namespace bulkhead {

enum class FakeNcclFault : int {
  kNone,
  kNeverConnects,   // ranks stay "in progress"
  kSumsWrongly,     // one element of a sum of more than 1000
  kFailsLater,      // an asynchronous error, once `fail` is set
  kRefusesWindows,  // registering fails
};

struct FakeNcclControls {
  std::atomic<FakeNcclFault> fault{FakeNcclFault::kNone};
  std::atomic<bool> fail{false};
  std::atomic<int> windows{0};        // registered now
  std::atomic<int> communicators{0};  // neither destroyed nor aborted
  void* (*allocate)(size_t bytes) = nullptr;
  void (*free)(void* memory) = nullptr;
};

}  // namespace bulkhead

// The library's one.
extern "C" bulkhead::FakeNcclControls* fake_nccl_controls();
