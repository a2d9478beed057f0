// What a rank's start asks of the hosts that the group runs on: one start at a time where ranks
// compute on CPUs, what limits every rank's memory, and what is resident at READY.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/group/startup.h"
#include "launcher/planning/host_limits.h"

namespace bulkhead {

// Collective. Waits until no other group starts on CPUs of these hosts; until the seal none can.
// One rank of each host takes its lock, host after host in an order that all groups have: no two
// wait for each other. Ends after 0.8 of `timeout`, before the others stop waiting for this rank.
absl::Status LockHosts(GroupExchange& exchange, absl::Duration timeout, RankEngine& engine);

struct HostsFound {
  LimitsOfRanks limits;
  std::optional<HostRequest> request;  // rank 0's
};

// Collective. `server` is null where nothing is served.
absl::StatusOr<HostsFound> ProbeHosts(GroupExchange& exchange, absl::Duration timeout,
                                      const ServeOptions* server, const std::string& dir);

// Collective. Every rank's budget, measured or given.
absl::StatusOr<std::vector<DeviceBudget>> FindBudgets(const EngineOptions& options, Group& group,
                                                      const HostsFound& hosts, RankEngine& engine);

// What a changed command line would come to on these hosts; INVALID_ARGUMENT or RESOURCE_EXHAUSTED
// where they refuse it. `hosts` and the engine's source and backend outlive the function.
PlanAgain PlanAgainOnHosts(const HostsFound& hosts, const std::vector<DeviceBudget>& budgets,
                           DeviceKind kind, const RankEngine& engine);

// Makes `plan` the engine's, once what hosts have beside it allows it; else refuses, on every rank
// alike, and writes `report`.
absl::Status SettlePlan(const EngineOptions& options, const HostsFound& hosts,
                        const PlanAgain& plan_again, const std::optional<std::string>& report,
                        GroupPlan plan, RankEngine& engine);

// At READY: compares the heap beside the arenas with what the host budget has for it, and warns
// where it is more (fatal in debug builds).
void CheckHeap(const RankEngine& engine);

}  // namespace bulkhead
