// For a line that callers can bring about as often as they like.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace bulkhead {

// At most one line an interval. Thread-safe.
class LogPace {
 public:
  explicit LogPace(absl::Duration interval, std::function<absl::Time()> now = absl::Now)
      : interval_(interval), now_(std::move(now)) {}

  // Whether this one is logged; then `unsaid` is how many before it were not.
  bool MayLog(int64_t* unsaid);

 private:
  const absl::Duration interval_;
  const std::function<absl::Time()> now_;
  std::mutex mutex_;
  absl::Time next_ = absl::InfinitePast();
  int64_t unsaid_ = 0;
};

}  // namespace bulkhead
