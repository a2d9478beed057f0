#include "base/log_pace.h"

#include <utility>

namespace bulkhead {

bool LogPace::ShouldLog(int64_t* suppressed_count) {
  const absl::MutexLock lock(&mutex_);
  const absl::Time now = now_();
  if (now < next_) {
    ++suppressed_count_;
    return false;
  }
  next_ = now + interval_;
  *suppressed_count = std::exchange(suppressed_count_, 0);
  return true;
}

}  // namespace bulkhead
