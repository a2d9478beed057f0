#include "runtime/service/http/http_message.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace bulkhead {

std::string HttpDate() {
  return absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone());
}

bool BodyClaim::GrowTo(int64_t bytes) {
  constexpr int64_t kSmallBytes = int64_t{64} << 10;
  const int64_t more = bytes - bytes_;
  if (more <= 0) return true;
  const int64_t limit = bytes <= kSmallBytes ? limit_ : limit_ - limit_ / 8;
  if (!counter_->AddWithin(more, limit)) {
    if (counter_->now() > bytes_) return false;
    counter_->Add(more);
  }
  bytes_ = bytes;
  return true;
}

void BodyClaim::GiveBack() {
  if (counter_ != nullptr) counter_->Sub(bytes_);
  bytes_ = 0;
}

}  // namespace bulkhead
