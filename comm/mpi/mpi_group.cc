#include "comm/mpi/mpi_group.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/launch_environment.h"
#include "comm/local/local_group.h"
#include "comm/mpi/mpi_files.h"
#include "comm/mpi/mpi_link.h"
#include "comm/mpi/mpi_ports.h"
#include "comm/mpi/mpi_session.h"
#include "comm/shm/shm_group.h"
#include "comm/tree/multi_host_group.h"

namespace bulkhead {
namespace {

LaunchEnvironment OwnLaunch() {
  return ReadLaunchEnvironment([](const char* name) { return std::getenv(name); });
}

// Once per host. A launch needs its segments' names only during its start.
void RemoveKilledLaunchesFiles(const LaunchEnvironment& launch) {
  constexpr absl::Duration kAge = absl::Minutes(10);
  if (launch.local_rank != 0) return;
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  Leftovers where{
      .segments = "/dev/shm", .host = host, .launches = "", .launch_prefix = "", .age = kAge};
  if (const char* const own = std::getenv("PMIX_SERVER_TMPDIR"); own != nullptr) {
    const std::filesystem::path launch = own, folder = launch.parent_path();
    const std::string name = launch.filename().string(), of_host = absl::StrCat(".", host, ".");
    if (absl::StartsWith(folder.filename().string(), "ompi.")) {
      where.launch_prefix = "pid.";
    } else if (const size_t at = name.find(of_host);
               absl::StartsWith(name, "prte") && at != name.npos) {
      where.launch_prefix = name.substr(0, at + of_host.size());
    }
    if (!where.launch_prefix.empty()) where.launches = folder.string();
  }
  const int removed = RemoveLeftovers(where);
  if (removed == 0) return;
  BH_LOG(kInfo) << "removed " << removed << " files and folders that killed launches left in "
                << where.segments << " and " << where.launches;
}

// A group on one or more nodes, with its MPI session.
class MpiGroup final : public Group {
 public:
  MpiGroup(std::unique_ptr<MpiSession> session, std::unique_ptr<Group> group)
      : session_(std::move(session)), group_(std::move(group)) {}
  GroupExchange& exchange() override { return group_->exchange(); }
  ControlBus& bus() override { return group_->bus(); }
  GroupLiveness& liveness() override { return group_->liveness(); }
  void AllowSpinning(bool allowed) override { group_->AllowSpinning(allowed); }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const CommLimits& limits,
                                                        MemoryLedger& ledger) override {
    return group_->Connect(limits, ledger);
  }
  void Leave(const absl::Status& status) override {
    // A rank that ends before MPI_Finalize returns is lost: the others wait for it there.
    if (IsAgreed(status)) session_->Finalize(OwnLaunch());
    group_->Leave(status);
    if (!IsAgreed(status)) MpiSession::Abort(static_cast<int>(ExitCodeOf(status)));
  }

 private:
  std::unique_ptr<MpiSession> session_;
  std::unique_ptr<Group> group_;
};

std::unique_ptr<LeaderLink> LinkOf(const RankTopology& world, std::shared_ptr<Region> region) {
  if (world.local_rank != 0) return nullptr;
  std::vector<int> leaders;
  for (int node = 0; node < world.num_nodes(); ++node) {
    leaders.push_back(world.RanksOf(node).front());
  }
  return std::make_unique<MpiLink>(world.node(), std::move(leaders), std::move(region));
}

absl::StatusOr<std::unique_ptr<Group>> NewSingleHostGroup(MpiSession& session,
                                                          absl::Duration timeout) {
  if (session.topology().size == 1) return NewSingleGroup();
  BH_ASSIGN_OR_RETURN(HostPart part, NewHostPart(session, timeout));
  return std::move(part.group);
}

// First the ranks of each host form a group, then the hosts.
absl::StatusOr<std::unique_ptr<Group>> NewMultiHostGroup(MpiSession& session,
                                                         absl::Duration timeout) {
  const RankTopology& world = session.topology();
  BH_ASSIGN_OR_RETURN(const std::unique_ptr<MpiSession> bootstrap, session.SplitByNode(timeout));
  absl::StatusOr<HostPart> part = NewHostPart(*bootstrap, timeout);
  BH_RETURN_IF_ERROR(Agree(session, "the ranks of each host", part.status(), timeout));
  const char* const include = std::getenv("OMPI_MCA_btl_tcp_if_include");
  BH_ASSIGN_OR_RETURN(
      std::unique_ptr<HostLiveness> host_liveness,
      HostLiveness::Connect(session, include == nullptr ? "" : include, timeout, &MonotonicNanos));
  std::unique_ptr<LeaderLink> link = LinkOf(world, part->region);
  return std::make_unique<MultiHostGroup>(part->region, std::move(part->group), world,
                                          std::move(link), std::move(host_liveness),
                                          &ShareBetweenProcesses);
}

}  // namespace

bool LaunchedAsGroup() { return OwnLaunch().by_launcher(); }

absl::StatusOr<std::unique_ptr<Group>> NewMpiGroup(absl::Duration timeout) {
  MpiPorts ports;
  const LaunchEnvironment launch = OwnLaunch();
  BH_ASSIGN_OR_RETURN(std::unique_ptr<MpiSession> session, MpiSession::Start(launch, timeout));
  absl::StatusOr<std::unique_ptr<Group>> group = session->topology().one_host()
                                                     ? NewSingleHostGroup(*session, timeout)
                                                     : NewMultiHostGroup(*session, timeout);
  if (group.ok()) {
    absl::Status closed = ports.RejectExternalConnections((*group)->exchange(), timeout);
    if (!closed.ok()) group = std::move(closed);
  }
  if (!group.ok()) {
    if (IsAgreed(group.status())) session->Finalize(launch);
    return group.status();
  }
  RemoveKilledLaunchesFiles(launch);
  return std::make_unique<MpiGroup>(std::move(session), *std::move(group));
}

}  // namespace bulkhead
