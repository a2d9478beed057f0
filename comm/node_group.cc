#include "comm/node_group.h"

#include <unistd.h>

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "comm/shm_group.h"
#include "comm/single_group.h"
#include "memory/exit_code.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

// Equal on all ranks, as the topology is.
absl::Status RefuseUnlessOneHost(const RankTopology& topology) {
  absl::Status refusal;
  if (!topology.one_host()) {
    const std::set<std::string> hosts(topology.hosts.begin(), topology.hosts.end());
    refusal = absl::UnimplementedError(absl::StrCat(
        "the group spans ", hosts.size() > 1 ? "the hosts " : "several machines named ",
        absl::StrJoin(hosts, ", "), "; all ranks must run on one host"));
  } else if (topology.size > kMaxLocalRanks) {
    refusal = absl::UnimplementedError(absl::StrCat(topology.size, " ranks on one host; at most ",
                                                    kMaxLocalRanks, " can share it"));
  }
  return MarkAgreed(WithExitCode(refusal, ExitCode::kGroupNotUp));
}

// The launcher started this process, or the shell wrapped around it, and outlives it.
absl::Status WatchProcesses(GroupExchange& bootstrap, Region& region, ShmLiveness& liveness,
                            absl::Duration timeout) {
  constexpr char kPhase[] = "watching the ranks' processes";
  region.life(region.rank()).pid.store(getpid());
  BH_RETURN_IF_ERROR(Agree(bootstrap, kPhase, absl::OkStatus(), timeout));
  return Agree(bootstrap, kPhase, liveness.WatchProcesses(getppid()), timeout);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Group>> NewNodeGroup(GroupExchange& bootstrap,
                                                    absl::Duration timeout) {
  const RankTopology& topology = bootstrap.topology();
  if (topology.size == 1) return NewSingleGroup();
  BH_RETURN_IF_ERROR(RefuseUnlessOneHost(topology));
  BH_ASSIGN_OR_RETURN(SharedMemory memory,
                      ShareBetweenProcesses(bootstrap, Region::Bytes(topology.size), timeout));
  auto region = std::make_shared<Region>(std::move(memory), topology.rank, topology.size);
  auto group = std::make_unique<ShmGroup>(region, topology, &ShareBetweenProcesses);
  BH_RETURN_IF_ERROR(WatchProcesses(bootstrap, *region, group->liveness(), timeout));
  return group;
}

}  // namespace bulkhead
