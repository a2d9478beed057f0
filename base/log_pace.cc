#include "base/log_pace.h"

#include <utility>

namespace bulkhead {

bool LogPace::MayLog(int64_t* unsaid) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const absl::Time now = now_();
  if (now < next_) {
    ++unsaid_;
    return false;
  }
  next_ = now + interval_;
  *unsaid = std::exchange(unsaid_, 0);
  return true;
}

}  // namespace bulkhead
