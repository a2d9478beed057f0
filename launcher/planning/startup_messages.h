// The messages that ranks exchange before planning: a field added to a struct does not compile
// until it is also sent.
#pragma once

#include "bulkhead/internal/startup.pb.h"
#include "launcher/planning/host_budget.h"
#include "memory/capacity.h"
#include "memory/host_memory.h"

namespace bulkhead {

internal::DeviceBudget ToProto(const DeviceBudget& budget);
DeviceBudget FromProto(const internal::DeviceBudget& message);
internal::RankHost::Limit ToProto(const HostLimit& limit);
HostLimit FromProto(const internal::RankHost::Limit& message);
internal::RankHost::Request ToProto(const HostRequest& request);
HostRequest FromProto(const internal::RankHost::Request& message);

}  // namespace bulkhead
