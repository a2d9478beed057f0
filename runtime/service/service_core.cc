#include "runtime/service/service_core.h"

#include "runtime/service/refusal.h"

namespace bulkhead {

absl::Status ServiceCore::WhyRefused(size_t message_bytes) const {
  if (host.refuses_calls) return HostIsShortOfMemory();
  return WhyTooLarge(message_bytes, quotas.message_bytes);
}

}  // namespace bulkhead
