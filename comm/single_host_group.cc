#include "comm/single_host_group.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "comm/shm_group.h"
#include "comm/single_group.h"

namespace bulkhead {
namespace {

absl::Status RefuseUnlessFew(const RankTopology& topology) {
  if (topology.size <= kMaxLocalRanks) return absl::OkStatus();
  return WithExitCode(absl::UnimplementedError(absl::StrCat(
                          topology.size, " ranks on host ", topology.hosts[0], "; at most ",
                          kMaxLocalRanks, " can share it: spread them over more hosts")),
                      ExitCode::kGroupNotUp);
}

// The parent is the launcher or the shell that wraps this process, and outlives it.
absl::Status WatchProcesses(GroupExchange& bootstrap, Region& region, ShmLiveness& liveness,
                            absl::Duration timeout) {
  constexpr char kPhase[] = "watching the ranks' processes";
  region.life(region.rank()).pid.store(getpid());
  BH_RETURN_IF_ERROR(Agree(bootstrap, kPhase, absl::OkStatus(), timeout));
  return Agree(bootstrap, kPhase, liveness.WatchProcesses(getppid()), timeout);
}

}  // namespace

absl::StatusOr<HostPart> NewHostPart(GroupExchange& bootstrap, absl::Duration timeout) {
  const RankTopology& topology = bootstrap.topology();
  BH_RETURN_IF_ERROR(MarkAgreed(RefuseUnlessFew(topology)));
  BH_ASSIGN_OR_RETURN(SharedMemory memory,
                      ShareBetweenProcesses(bootstrap, Region::Bytes(topology.size), timeout));
  HostPart part;
  part.region = std::make_shared<Region>(std::move(memory), topology.rank, topology.size);
  part.group = std::make_unique<ShmGroup>(part.region, topology, &ShareBetweenProcesses);
  BH_RETURN_IF_ERROR(WatchProcesses(bootstrap, *part.region, part.group->liveness(), timeout));
  return part;
}

absl::StatusOr<std::unique_ptr<Group>> NewSingleHostGroup(GroupExchange& bootstrap,
                                                          absl::Duration timeout) {
  if (bootstrap.topology().size == 1) return NewSingleGroup();
  BH_ASSIGN_OR_RETURN(HostPart part, NewHostPart(bootstrap, timeout));
  return std::move(part.group);
}

}  // namespace bulkhead
