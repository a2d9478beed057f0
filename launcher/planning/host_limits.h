// The memory limits of a group's hosts: which ranks share a limit, each rank's share, and whether
// the given sizes and the clients' maximum are available at all. Pure: every rank computes the same
// from the same limits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/planning/host_fit.h"
#include "memory/host_memory.h"

namespace bulkhead {

// By rank, the result of ProbeHostLimits there. Limits with equal ids are the same.
using LimitsOfRanks = std::vector<std::vector<HostLimit>>;

// A rank's fair share of its host: the minimum, over its limits, of an equal share among the ranks
// that have it. A rank in its own cgroup has all of that cgroup.
HostMemory ShareOf(const LimitsOfRanks& limits, int rank);

// The source of the host budget, once every rank's budget is known.
HostAvailability AvailabilityOf(const LimitsOfRanks& limits,
                                absl::Span<const DeviceBudget> budgets);

// Final check of a plan that fits against the hosts' memory, as far as `plan.host` and
// --device-memory were given rather than measured. RESOURCE_EXHAUSTED with exit code 4, naming the
// limit and host, if they exceed a limit, or the arenas alone exceed the free memory; `plan.host`
// then does not fit. If clients' maximum exceeds the free memory the quotas are reduced, and if
// they cannot be, `warning` is set.
absl::Status FinalizeHost(const LimitsOfRanks& limits, const std::optional<HostRequest>& request,
                          GroupPlan& plan, std::string& warning);

}  // namespace bulkhead
