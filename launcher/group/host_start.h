// Host-specific steps of a rank's start: serialising starts of CPU ranks, the memory limits of
// every rank, and resident memory at READY.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/group/rank_engine.h"
#include "launcher/planning/host_limits.h"

namespace bulkhead {

// Collective. Waits until no other group is starting on the CPUs of these hosts, and blocks others
// until the seal. One rank per host takes its lock, in the same order of hosts in every group, so
// that no two groups deadlock. Gives up after kLockShare of `timeout`.
absl::Status LockHosts(Group& group, absl::Duration timeout, RankEngine& engine);

struct HostsFound {
  LimitsOfRanks limits;
  std::optional<HostRequest> request;  // rank 0's
};

// Collective. `server` is null if nothing is served.
absl::StatusOr<HostsFound> ProbeHosts(GroupExchange& exchange, absl::Duration timeout,
                                      const ServeOptions* server, const RankEngine& engine);

// Collective. Every rank's budget, measured or given.
absl::StatusOr<std::vector<DeviceBudget>> FindBudgets(const EngineOptions& options, Group& group,
                                                      const HostsFound& hosts, RankEngine& engine);

// Plans a changed command line on these hosts; INVALID_ARGUMENT or RESOURCE_EXHAUSTED if refused.
// `hosts` and the engine's source and backend outlive the function.
PlanAgain PlanAgainOnHosts(const HostsFound& hosts, const std::vector<DeviceBudget>& budgets,
                           DeviceKind kind, const RankEngine& engine);

// Adopts `plan` for the engine if the hosts' memory outside the arenas allows it; otherwise
// refuses, equally on every rank, and writes `report`.
absl::Status FinalizePlan(const EngineOptions& options, const HostsFound& hosts,
                          const PlanAgain& plan_again, const std::optional<std::string>& report,
                          GroupPlan plan, RankEngine& engine);

// At READY: compares the heap outside the arenas with its part of the host budget, and warns if it
// is larger (fatal in debug builds).
void CheckHeap(const RankEngine& engine);

}  // namespace bulkhead
