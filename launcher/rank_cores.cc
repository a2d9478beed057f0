#include "launcher/rank_cores.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/host_cores.h"
#include "base/log.h"
#include "base/status.h"
#include "bulkhead/internal/startup.pb.h"
#include "launcher/gather_messages.h"
#include "memory/numa.h"

namespace bulkhead {
namespace {

constexpr int64_t kPercentOnNodes = 95;

internal::RankCores CoresOfThisRank(const EngineOptions& options, bool cuda) {
  internal::RankCores mine;
  mine.set_num_threads(options.threads.value_or(0));
  mine.set_quota(CoreQuota().value_or(kMaxCores));
  const std::vector<int> allowed = AllowedCores();
  mine.mutable_cores()->Assign(allowed.begin(), allowed.end());
  // A policy from numactl is kept unless --numa LIST overrides it.
  const bool given = HasMemoryPolicy() && options.numa.nodes.empty();
  mine.set_place(!options.numa.off && !given && !cuda);
  mine.mutable_numa_nodes()->Assign(options.numa.nodes.begin(), options.numa.nodes.end());
  return mine;
}

// `ranks`: the ranks of this host, by local rank.
absl::StatusOr<NumaPlan> PlanOfHost(const std::vector<internal::RankCores>& ranks) {
  NumaOption option;
  option.nodes.assign(ranks[0].numa_nodes().begin(), ranks[0].numa_nodes().end());
  std::vector<std::vector<int>> cores;
  for (const internal::RankCores& rank : ranks) {
    const std::vector<int> listed(rank.numa_nodes().begin(), rank.numa_nodes().end());
    if (listed != option.nodes) {
      return absl::InvalidArgumentError(
          absl::StrCat("--numa is ", listed.empty() ? "auto" : absl::StrJoin(listed, ","),
                       " on one rank of this host and ",
                       option.nodes.empty() ? "auto" : absl::StrJoin(option.nodes, ","),
                       " on another; give all ranks of a host the same"));
    }
    option.off = option.off || !rank.place();
    cores.emplace_back(rank.cores().begin(), rank.cores().end());
    if (std::any_of(rank.cores().begin(), rank.cores().end(),
                    [](int core) { return core < 0 || core >= kMaxCores; })) {
      return absl::InternalError(absl::StrCat(absl::StrJoin(rank.cores(), ","), " are not cores"));
    }
  }
  return PlaceRanks(ProbeNumaNodes(), cores, option);
}

void Bind(const NumaPlacement& mine) {
  UseCores(mine.cores);
  const absl::Status placed = UseMemoryOf(mine.nodes);
  // Pages come from the node of the thread that touches them, which is bound already.
  if (!placed.ok() && mine.nodes.size() > 1) BH_LOG(kWarning) << placed.message();
}

}  // namespace

absl::StatusOr<ThreadConfig> PlaceAndCountThreads(const EngineOptions& options, bool cuda,
                                                  GroupExchange& exchange) {
  const RankTopology& topology = exchange.topology();
  const internal::RankCores mine = CoresOfThisRank(options, cuda);
  BH_ASSIGN_OR_RETURN(const std::vector<internal::RankCores> ranks,
                      GatherMessages(exchange, mine, options.startup_timeout));
  std::vector<internal::RankCores> neighbours;
  for (const int rank : topology.RanksOf(topology.node())) neighbours.push_back(ranks[rank]);
  const absl::StatusOr<NumaPlan> plan = PlanOfHost(neighbours);
  BH_RETURN_IF_ERROR(Agree(exchange, "NUMA placement",
                           WithExitCode(plan.status(), ExitCode::kUsage), options.startup_timeout));
  if (!plan->warning.empty() && topology.local_rank == 0) BH_LOG(kWarning) << plan->warning;
  const NumaPlacement& placed = plan->ranks[topology.local_rank];
  if (!placed.nodes.empty()) Bind(placed);

  std::vector<std::vector<int>> cores;
  std::vector<int> sharers(kMaxCores, 0);  // ranks of this host that may use each core
  for (const NumaPlacement& rank : plan->ranks) {
    cores.push_back(OnePerPhysicalCore(rank.cores));
    for (const int core : cores.back()) ++sharers[core];
  }
  // Assumes that the ranks of a host share one quota, as in a container.
  const auto threads_of = [&](size_t rank) {
    if (neighbours[rank].num_threads() > 0) return neighbours[rank].num_threads();
    double share = 0;
    for (const int core : cores[rank]) share += 1.0 / sharers[core];
    share = std::min(share, neighbours[rank].quota() / static_cast<double>(neighbours.size()));
    return std::clamp(static_cast<int>(share + 1e-6), 1, kMaxThreads);
  };
  int all_threads = 0;
  for (size_t rank = 0; rank < cores.size(); ++rank) all_threads += threads_of(rank);
  const auto used = std::count_if(sharers.begin(), sharers.end(), [](int n) { return n > 0; });
  ThreadConfig choice;
  choice.numa_nodes = placed.nodes;
  choice.num_threads = threads_of(topology.local_rank);
  choice.cores_allowed = static_cast<int>(placed.cores.size());
  choice.may_spin = all_threads <= std::min<double>(static_cast<double>(used), mine.quota()) &&
                    choice.num_threads <= static_cast<int>(cores[topology.local_rank].size());
  if (choice.num_threads > choice.cores_allowed) {
    BH_LOG(kWarning) << choice.num_threads << " threads may run on " << choice.cores_allowed
                     << " cores only; "
                     << (topology.size > 1 ? "start with mpirun --bind-to none, or lower --threads"
                                           : "lower --threads");
  }
  return choice;
}

void LogNumaBytes(const ThreadConfig& threads, int rank) {
  if (threads.numa_nodes.empty()) return;
  const NumaBytes bytes = MeasureNumaBytes(threads.numa_nodes);
  const int64_t all = bytes.on_nodes + bytes.elsewhere;
  if (all == 0) return;
  const bool enough = bytes.on_nodes / kPercentOnNodes >= all / 100;
  LogLine(enough ? LogLevel::kVerbose : LogLevel::kWarning)
      << "rank " << rank << ": " << FormatBytes(bytes.on_nodes) << " of " << FormatBytes(all)
      << " are on NUMA node" << (threads.numa_nodes.size() == 1 ? " " : "s ")
      << CoreListText(threads.numa_nodes)
      << (enough ? ""
                 : "; the rest is read from afar: free memory there, or lower --device-memory");
}

}  // namespace bulkhead
