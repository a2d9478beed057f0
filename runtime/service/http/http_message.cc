#include "runtime/service/http/http_message.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace bulkhead {

std::string HttpDate() {
  return absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone());
}

bool BodyClaim::GrowTo(int64_t bytes) {
  if (bytes <= bytes_) return true;
  if (!counters_->TakeRequestBytes(bytes - bytes_, bytes_, limit_)) return false;
  bytes_ = bytes;
  return true;
}

void BodyClaim::GiveBack() {
  if (counters_ != nullptr) counters_->request_bytes.Sub(bytes_);
  bytes_ = 0;
}

}  // namespace bulkhead
