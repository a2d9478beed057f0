// HeapTrimmer: returns memory freed by calls to the system. malloc keeps it per thread, which after
// a burst of long prompts can be hundreds of unused megabytes.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

namespace bulkhead {

class HeapTrimmer {
 public:
  explicit HeapTrimmer(absl::Duration delay = absl::Seconds(1));
  ~HeapTrimmer();
  HeapTrimmer(const HeapTrimmer&) = delete;
  HeapTrimmer& operator=(const HeapTrimmer&) = delete;

  // Schedules a trim after memory was freed: once, the delay after the first call, and not again
  // within twice the delay. Thread-safe, cheap.
  void TrimLater();

 private:
  void Loop();

  const absl::Duration delay_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool wanted_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace bulkhead
