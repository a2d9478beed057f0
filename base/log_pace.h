// Rate limit for log lines that clients can trigger.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace bulkhead {

// One line per interval on average, `burst` of them at once at most. Thread-safe.
class LogPace {
 public:
  LogPace(absl::Duration interval, int burst, std::function<absl::Time()> now = absl::Now)
      : interval_(interval), burst_(burst), now_(std::move(now)) {}

  // True if this line may be logged; `suppressed_count` is then the number of lines suppressed
  // before it.
  bool ShouldLog(int64_t* suppressed_count);

 private:
  const absl::Duration interval_;
  const int burst_;
  const std::function<absl::Time()> now_;
  absl::Mutex mutex_;
  absl::Time next_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t suppressed_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace bulkhead
