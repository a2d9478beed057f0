// What limits the memory of a group's hosts: who shares which limit, what that leaves each rank,
// and whether what ranks were given and clients may come to is there at all. Pure: every rank finds
// the same from the same limits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/planning/host_fit.h"
#include "memory/host_memory.h"

namespace bulkhead {

// By rank, what ProbeHostLimits found there. Limits with the same id are one.
using LimitsOfRanks = std::vector<std::vector<HostLimit>>;

// A rank's fair part of its host: of every limit its share among the ranks that have it, and of
// those the least. A rank in a cgroup of its own has all of that cgroup.
HostMemory ShareOf(const LimitsOfRanks& limits, int rank);

// Where the host budget comes from, once every rank's budget is known.
HostRoom RoomOf(const LimitsOfRanks& limits, absl::Span<const DeviceBudget> budgets);

// Ends a plan that fits by what hosts have, as far as `plan.host` and --device-memory were not
// measured. RESOURCE_EXHAUSTED with exit code 4, naming the limit and host, when that is more than
// a limit allows, or the arenas alone are more than is free now; `plan.host` then does not fit.
// Where clients may come to more than is free now the quotas give way, and where they cannot,
// `warning` says so.
absl::Status SettleHost(const LimitsOfRanks& limits, const std::optional<HostRequest>& request,
                        GroupPlan& plan, std::string& warning);

}  // namespace bulkhead
