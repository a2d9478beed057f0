#include "comm/multi_host_group.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "comm/tree_communicator.h"
#include "comm/wait.h"

namespace bulkhead {
namespace {

// A waiting leader polls every 5 ms, less often on a busy machine.
constexpr int64_t kMaxPollNanos = 2'000'000'000;

}  // namespace

NodesLiveness::NodesLiveness(ShmLiveness& node, const RankTopology& world, const Region& region,
                             HostLiveness* host_liveness)
    : node_(node), world_(world), region_(region), host_liveness_(host_liveness) {
  if (host_liveness_ == nullptr) return;
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  BH_CHECK(epoll_fd_ >= 0);
  for (const int fd : {node_.fd(), host_liveness_->fd()}) {
    epoll_event event = {};
    event.events = EPOLLIN;
    if (fd >= 0) BH_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0);
  }
}

NodesLiveness::~NodesLiveness() {
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

void NodesLiveness::Beat() {
  node_.Beat();
  if (host_liveness_ != nullptr) host_liveness_->Beat();
}

// This node's knowledge of its own ranks is closer to the cause than reports from elsewhere.
absl::Status NodesLiveness::Check(absl::Duration silence) {
  absl::Status lost = node_.Check(silence);
  if (lost.ok() && host_liveness_ != nullptr) lost = host_liveness_->Check(silence);
  return lost;
}

void NodesLiveness::Rearm() {
  node_.Rearm();
  if (host_liveness_ != nullptr) host_liveness_->Rearm();
}

Stragglers NodesLiveness::FindStragglers() {
  const int node = region_.awaited_node();
  if (node < 0) return node_.FindStragglers();
  // A leader that waits for another host keeps polling; one that stopped polling hangs itself.
  if (MonotonicNanos() - region_.polled_ns() > kMaxPollNanos) return node_.StragglerOf(0);
  const std::vector<int> ranks = world_.RanksOf(node);
  if (ranks.size() == 1) return {world_.NameOf(ranks[0]), true, {}};
  return {
      absl::StrCat("ranks ", absl::StrJoin(ranks, ", "), " (host ", world_.hosts[ranks[0]], ")"),
      true,
      {}};
}

void NodesLiveness::Abort(const absl::Status& why) {
  node_.Abort(why);
  if (host_liveness_ != nullptr) host_liveness_->Abort(why);
}

void NodesLiveness::Ending() {
  node_.Ending();
  if (host_liveness_ != nullptr) host_liveness_->Ending();
}

MultiHostGroup::MultiHostGroup(std::shared_ptr<Region> region, std::unique_ptr<ShmGroup> node,
                               const RankTopology& world, std::unique_ptr<LeaderLink> link,
                               std::unique_ptr<HostLiveness> host_liveness, ShareMemory share)
    : world_(world),
      region_(std::move(region)),
      node_(std::move(node)),
      link_(std::move(link)),
      host_liveness_(std::move(host_liveness)),
      share_(share),
      exchange_(node_->exchange(), *region_, link_.get(), world_),
      bus_(node_->bus(), link_.get()),
      liveness_(node_->liveness(), world_, *region_, host_liveness_.get()) {}

void MultiHostGroup::AllowSpinning(bool allowed) {
  node_->AllowSpinning(allowed);
  if (link_ != nullptr) link_->set_may_spin(allowed);
}

absl::StatusOr<std::unique_ptr<Communicator>> MultiHostGroup::Connect(const CommLimits& limits,
                                                                      MemoryLedger& ledger) {
  const CommunicationLayout layout(limits, world_.size);
  BH_ASSIGN_OR_RETURN(Buffer result, TakeCommunication(layout, exchange_, ledger));
  absl::StatusOr<SharedMemory> tensors = share_(
      node_->exchange(), region_->size() * layout.MappedBytes() + kPageBytes, kConnectTimeout);
  BH_RETURN_IF_ERROR(Agree(exchange_, kConnectPhase, tensors.status(), kConnectTimeout));
  return std::make_unique<TreeCommunicator>(region_, world_, link_.get(), limits,
                                            *std::move(tensors), std::move(result));
}

void MultiHostGroup::Leave(const absl::Status& status) {
  liveness_.Ending();
  if (!IsAgreed(status)) liveness_.Abort(status);
}

}  // namespace bulkhead
