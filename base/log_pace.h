// Rate limit for log lines that clients can trigger.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace bulkhead {

// At most one line per interval. Thread-safe.
class LogPace {
 public:
  explicit LogPace(absl::Duration interval, std::function<absl::Time()> now = absl::Now)
      : interval_(interval), now_(std::move(now)) {}

  // True if this line may be logged; `suppressed_count` is then the number of lines suppressed
  // before it.
  bool ShouldLog(int64_t* suppressed_count);

 private:
  const absl::Duration interval_;
  const std::function<absl::Time()> now_;
  std::mutex mutex_;
  absl::Time next_ = absl::InfinitePast();
  int64_t suppressed_count_ = 0;
};

}  // namespace bulkhead
