#include "runtime/service/service_core.h"

#include "runtime/service/refusal.h"

namespace bulkhead {

absl::Status WhyTooLarge(size_t message_bytes, int64_t limit_bytes) {
  if (static_cast<int64_t>(message_bytes) <= limit_bytes) return absl::OkStatus();
  return WithReason(absl::ResourceExhaustedError(absl::StrCat("the request has ", message_bytes,
                                                              " bytes, more than the limit of ",
                                                              limit_bytes, "; send a shorter one")),
                    reason::kMessageTooLarge,
                    {{"value", absl::StrCat(message_bytes)}, {"limit", absl::StrCat(limit_bytes)}});
}

absl::Status ServiceCore::WhyRefused(size_t message_bytes) const {
  if (host.refuses_calls) {
    return WithRetryAfter(
        WithReason(absl::ResourceExhaustedError(
                       "rank 0's host is short of memory and takes no new calls; try again later"),
                   reason::kHostMemory),
        absl::Seconds(1));
  }
  return WhyTooLarge(message_bytes, quotas.message_bytes);
}

}  // namespace bulkhead
