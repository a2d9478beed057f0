#include "runtime/service/service_core.h"

#include <sys/random.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

void ServiceCore::SetReady(ServingParts parts) {
  pressure.SetReady();
  state.SetReady(std::move(parts));
}

void ServiceCore::SetLost(const absl::Status& why, LostRank lost) {
  state.SetLost(why, std::move(lost));
  // Explained by the lost state: the first cause, with its rank.
  calls.EndAll(absl::UnavailableError(why.message()));
}

void ServiceCore::Stop(absl::Duration grace) {
  state.SetDraining();
  calls.WaitUntilClosed(grace);
  state.SetStopping();
  calls.EndAll(IsStopping());
}

std::string ServiceCore::NewRequestId() {
  uint64_t bits = 0;
  BH_CHECK(getrandom(&bits, sizeof(bits), 0) == sizeof(bits));
  return absl::StrCat(absl::Hex(bits, absl::kZeroPad16));
}

absl::Status ServiceCore::WhyRefused(size_t message_bytes) const {
  if (pressure.refuses_calls()) return HostIsShortOfMemory();
  return WhyTooLarge(message_bytes, quotas.message_bytes);
}

absl::Status ServiceCore::WhyFull() const {
  BH_ASSIGN_OR_RETURN(const std::shared_ptr<const ServingParts> parts, state.ForNewRequest());
  return parts->inbox->WhyFull();
}

absl::Status ServiceCore::TakeCalls(int calls) {
  if (calls == 0 || host.open_calls.AddWithin(calls, quotas.max_open_calls)) {
    return absl::OkStatus();
  }
  return WithRetryAfter(
      WithReason(absl::UnavailableError(absl::StrCat("more than ", quotas.max_open_calls,
                                                     " calls would be open; try again later")),
                 reason::kTooManyCalls),
      absl::Seconds(1));
}

}  // namespace bulkhead
