#include "launcher/group/host_start.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/host_cores.h"
#include "base/log.h"
#include "base/status.h"
#include "launcher/gather_messages.h"
#include "launcher/group/gpu_start.h"
#include "launcher/group/startup.h"
#include "launcher/planning/capacity_report.h"
#include "launcher/planning/changed_plan.h"
#include "launcher/planning/device_budget.h"
#include "launcher/planning/startup_messages.h"
#include "launcher/report.h"
#include "memory/host_memory.h"

namespace bulkhead {
namespace {

// For a group of `size` on the same hosts.
LimitsOfRanks LimitsOfGroup(const LimitsOfRanks& limits, int size) {
  LimitsOfRanks then;
  for (int rank = 0; rank < size; ++rank) {
    then.push_back(limits[static_cast<size_t>(rank) * limits.size() / static_cast<size_t>(size)]);
  }
  return then;
}

}  // namespace

absl::Status LockHosts(Group& group, absl::Duration timeout, RankEngine& engine) {
  GroupExchange& exchange = group.exchange();
  auto lock = DeviceLock::OpenHost();
  // Failing to create the lock does not prevent the start; a held lock does.
  if (!lock.ok()) BH_LOG(kWarning) << lock.status().message();
  // Ranks configured as several hosts may still share one.
  const std::string mine = lock.ok() ? absl::StrCat(BootId(), " ", (*lock)->FileId()) : "";
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> ids, exchange.AllGather(mine, timeout));
  std::map<std::string, int> first_ranks;  // ordered by id, as in every group
  for (int rank = 0; rank < static_cast<int>(ids.size()); ++rank) {
    if (!ids[rank].empty()) first_ranks.try_emplace(ids[rank], rank);
  }
  const absl::Time until = absl::Now() + kLockShare * timeout;
  for (const auto& [id, rank] : first_ranks) {
    const bool is_mine = rank == engine.topology.rank;
    BH_RETURN_IF_ERROR(RunPhase(exchange, "start lock", timeout, [&] {
      return is_mine ? (*lock)->Take(absl::Ceil(until - absl::Now(), absl::Milliseconds(100)),
                                     IsLost(group))
                     : absl::OkStatus();
    }));
    if (is_mine) engine.lock = *std::move(lock);
  }
  return absl::OkStatus();
}

absl::StatusOr<HostsFound> ProbeHosts(GroupExchange& exchange, absl::Duration timeout,
                                      const ServeOptions* server, const RankEngine& engine) {
  internal::RankHost mine;
  BH_RETURN_IF_ERROR(RunPhase(exchange, "host probe", timeout, [&]() -> absl::Status {
    BH_ASSIGN_OR_RETURN(const std::vector<HostLimit> limits,
                        ProbeHostLimits("", engine.threads.numa_nodes));
    for (const HostLimit& limit : limits) *mine.add_limits() = ToProto(limit);
    if (server != nullptr) {
      *mine.mutable_request() =
          ToProto(HostRequestOf(*server, engine.source.dir, exchange.topology().local_size));
    }
    return absl::OkStatus();
  }));
  BH_ASSIGN_OR_RETURN(const std::vector<internal::RankHost> ranks,
                      GatherMessages(exchange, mine, timeout));
  HostsFound found;
  if (ranks[0].has_request()) found.request = FromProto(ranks[0].request());
  for (const internal::RankHost& rank : ranks) {
    std::vector<HostLimit>& limits = found.limits.emplace_back();
    for (const internal::RankHost::Limit& limit : rank.limits()) limits.push_back(FromProto(limit));
  }
  return found;
}

absl::StatusOr<std::vector<DeviceBudget>> FindBudgets(const EngineOptions& options, Group& group,
                                                      const HostsFound& hosts, RankEngine& engine) {
  const RankTopology& topology = engine.topology;
  std::optional<HostMemory> share;
  if (!options.device_memory.has_value()) share = ShareOf(hosts.limits, topology.rank);
  DeviceBudget mine;
  BH_RETURN_IF_ERROR(
      RunPhase(group.exchange(), "memory probe", options.startup_timeout, [&]() -> absl::Status {
        BH_ASSIGN_OR_RETURN(mine, engine.driver != nullptr
                                      ? MeasureGpu(options, engine)
                                      : BudgetOf(options, topology.rank, topology.size, share,
                                                 engine.threads.num_threads));
        mine.host = topology.hosts[topology.rank];
        const std::vector<int> cores = AllowedCores();
        mine.cores = CoreListText(cores);
        const std::vector<int> nodes = NumaNodesOf(cores);
        if (!nodes.empty()) mine.numa_nodes = absl::StrJoin(nodes, ",");
        return absl::OkStatus();
      }));
  return GatherBudgets(group.exchange(), options.startup_timeout, mine);
}

PlanAgain PlanAgainOnHosts(const HostsFound& hosts, const std::vector<DeviceBudget>& budgets,
                           DeviceKind kind, const RankEngine& engine) {
  const auto changed = [budgets](const EngineOptions& other) {
    return ChangedBudgets(other, budgets);
  };
  const auto clients = [&hosts, changed](const Command& other, int size) {
    Clients under{ChangedRequest(hosts.request, other), {}};
    const auto now = static_cast<int>(hosts.limits.size());
    if (under.request.has_value()) {
      under.request->ranks_on_host = (under.request->ranks_on_host * size + now - 1) / now;
    }
    const auto budgets_then = changed(*EngineOf(other));
    if (budgets_then.ok())
      under.available = AvailabilityOf(LimitsOfGroup(hosts.limits, size), *budgets_then);
    return under;
  };
  PlanAgain plan_again = PlanAgainOn(engine.source, *engine.backend, kind, clients, changed);
  return [&hosts, plan_again](const Command& other) -> absl::StatusOr<GroupPlan> {
    BH_ASSIGN_OR_RETURN(GroupPlan plan, plan_again(other));
    if (!plan.fits()) return plan;
    const LimitsOfRanks limits =
        LimitsOfGroup(hosts.limits, static_cast<int>(plan.capacity.ranks.size()));
    std::string warning;
    BH_RETURN_IF_ERROR(FinalizeHost(limits, ChangedRequest(hosts.request, other), plan, warning));
    return plan;
  };
}

absl::Status FinalizePlan(const EngineOptions& options, const HostsFound& hosts,
                          const PlanAgain& plan_again, const std::optional<std::string>& report,
                          GroupPlan plan, RankEngine& engine) {
  std::string warning;
  absl::Status settled;
  const bool fits = plan.fits();
  if (plan.capacity.fits) settled = FinalizeHost(hosts.limits, hosts.request, plan, warning);
  engine.capacity = std::move(plan.capacity);
  engine.host = std::move(plan.host);
  engine.host_request = hosts.request;
  if (!engine.capacity.fits || (!fits && !settled.ok())) {
    return RefuseCapacity(options, plan_again, engine, report, std::move(settled));
  }
  const bool speaks = engine.topology.coordinator();
  if (speaks && !warning.empty()) BH_LOG(kWarning) << warning;
  if (!settled.ok() && speaks && engine.host.has_value() && report.has_value()) {
    BH_RETURN_IF_ERROR(
        WriteReport(*report, ReportOf(engine.capacity, {{}, kHostHasNoMore}, engine.facts())));
  }
  return MarkAgreed(std::move(settled));
}

void CheckHeap(const RankEngine& engine) {
  if (engine.driver != nullptr || !engine.host.has_value()) return;
  int64_t heap = ResidentAnonymousBytes();
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    // Shared between ranks, so not anonymous.
    if (static_cast<MemoryCategory>(i) == MemoryCategory::kCommunication &&
        engine.topology.size > 1)
      continue;
    heap -= engine.ledger->taken(static_cast<MemoryCategory>(i));
  }
  const int64_t planned =
      engine.host->standing_bytes() - (engine.topology.local_size - 1) * kRankHeapBytes;
  if (heap <= planned) return;
  BH_LOG(kWarning) << "rank 0's heap at READY is " << FormatBytes(heap)
                   << " where the host budget has " << FormatBytes(planned)
                   << " for it: clients have that much less memory on its host";
  BH_DEBUG_CHECK(heap <= planned);
}

}  // namespace bulkhead
