#include "base/log_pace.h"

#include <algorithm>
#include <utility>

namespace bulkhead {

bool LogPace::ShouldLog(int64_t* suppressed_count) {
  const absl::MutexLock lock(&mutex_);
  const absl::Time now = now_();
  const absl::Time next = std::max(next_, now);
  if (next > now + (burst_ - 1) * interval_) {
    ++suppressed_count_;
    return false;
  }
  next_ = next + interval_;
  *suppressed_count = std::exchange(suppressed_count_, 0);
  return true;
}

}  // namespace bulkhead
