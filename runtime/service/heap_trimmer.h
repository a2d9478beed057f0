// HeapTrimmer: gives the system back what calls have freed. malloc keeps it for each thread that
// took some, which after a burst of long prompts is hundreds of megabytes that nobody uses.
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

  // Memory was freed; it is trimmed once, the delay after the first of these, and not again before
  // the delay has passed twice. Thread-safe, and cheap.
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
