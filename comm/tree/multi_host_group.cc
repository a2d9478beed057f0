#include "comm/tree/multi_host_group.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "comm/tree/tree_communicator.h"
#include "comm/wait.h"

namespace bulkhead {
namespace {

// A node that misses one of its own ranks can name it; others give it time to report.
constexpr absl::Duration kGrace = absl::Milliseconds(500);

}  // namespace

absl::StatusOr<std::vector<std::string>> TreeExchange::AllGather(absl::string_view mine,
                                                                 absl::Duration timeout) {
  BH_RETURN_IF_ERROR(given_up_);
  const int64_t deadline_ns = timeout == absl::InfiniteDuration()
                                  ? kNoDeadline
                                  : MonotonicNanos() + absl::ToInt64Nanoseconds(timeout + kGrace);
  BH_ASSIGN_OR_RETURN(std::vector<std::string> here, node_.AllGather(mine, timeout));
  texts_.assign(topology_.size, "");
  const std::vector<int> local = topology_.RanksOf(topology_.node());
  for (size_t i = 0; i < local.size(); ++i) texts_[local[i]] = std::move(here[i]);
  if (link_ != nullptr) {
    given_up_ = SwapBetweenNodes(deadline_ns);
    BH_RETURN_IF_ERROR(given_up_);
  }
  for (int rank = 0; rank < topology_.size; ++rank) {
    if (topology_.nodes[rank] == topology_.node()) continue;
    // The other ranks of a node wait as long as their leader.
    BH_ASSIGN_OR_RETURN(std::vector<std::string> handed,
                        node_.AllGather(texts_[rank], timeout + 2 * kGrace));
    texts_[rank] = std::move(handed[0]);
  }
  return std::exchange(texts_, {});
}

absl::Status TreeExchange::SwapBetweenNodes(int64_t deadline_ns) {
  const int here = topology_.node();
  lengths_.assign(topology_.size, 0);
  for (const int rank : topology_.RanksOf(here)) {
    lengths_[rank] = static_cast<int64_t>(texts_[rank].size());
  }
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int node = 0; node < link_->num_nodes(); ++node) {
    if (node == here) continue;
    for (const int rank : topology_.RanksOf(here)) {
      sends.push_back({node, &lengths_[rank], sizeof(int64_t)});
    }
    for (const int rank : topology_.RanksOf(node)) {
      receives.push_back({.node = node, .data = &lengths_[rank], .row_bytes = sizeof(int64_t)});
    }
  }
  BH_RETURN_IF_ERROR(TransferOrName(sends, receives, deadline_ns));
  sends.clear();
  receives.clear();
  for (int rank = 0; rank < topology_.size; ++rank) {
    BH_CHECK(lengths_[rank] >= 0 && lengths_[rank] <= kMaxExchangeBytes);
    if (lengths_[rank] == 0) continue;
    if (topology_.nodes[rank] != here) {
      texts_[rank].resize(lengths_[rank]);
      receives.push_back({.node = topology_.nodes[rank],
                          .data = texts_[rank].data(),
                          .row_bytes = lengths_[rank]});
      continue;
    }
    for (int node = 0; node < link_->num_nodes(); ++node) {
      if (node != here) sends.push_back({node, texts_[rank].data(), lengths_[rank]});
    }
  }
  return TransferOrName(sends, receives, deadline_ns);
}

absl::Status TreeExchange::TransferOrName(const std::vector<Outgoing>& sends,
                                          const std::vector<Incoming>& receives,
                                          int64_t deadline_ns) {
  const absl::Status status = link_->Transfer(LinkKind::kExchange, sends, receives, deadline_ns);
  if (!absl::IsDeadlineExceeded(status)) return status;
  const int node = std::max(0, region_.awaited_node());
  const int leader = topology_.RanksOf(node).front();
  return WithExitCode(
      absl::DeadlineExceededError(
          absl::StrCat("the ranks of host ", topology_.hosts[leader], " did not arrive in time")),
      ExitCode::kGroupNotUp);
}

namespace {

// A message is sent as its length with as much of it as fits, then the rest, if any.
constexpr int64_t kFirstPieceBytes = 4096;
constexpr int64_t kHeadBytes = sizeof(int64_t);
constexpr int64_t kFirstTextBytes = kFirstPieceBytes - kHeadBytes;

// The parent of node n is n without its lowest set bit; its children add one bit below that.
int ParentOf(int node) { return node & (node - 1); }

// Largest subtree first: it has the longest path.
std::vector<int> ChildrenOf(int node, int num_nodes) {
  std::vector<int> children;
  for (int bit = 1; bit < num_nodes && (node & bit) == 0; bit *= 2) {
    if (node + bit < num_nodes) children.push_back(node + bit);
  }
  std::reverse(children.begin(), children.end());
  return children;
}

}  // namespace

absl::Status TreeBus::Publish(absl::string_view message) {
  BH_CHECK(link_ != nullptr && link_->node() == 0);
  BH_RETURN_IF_ERROR(Forward(message));
  return node_.Publish(message);
}

absl::Status TreeBus::Receive(std::string* message) {
  if (link_ == nullptr) return node_.Receive(message);
  const int parent = ParentOf(link_->node());
  first_.resize(kFirstPieceBytes);
  int64_t first_bytes = 0;
  const Incoming first{
      .node = parent, .data = first_.data(), .row_bytes = kFirstPieceBytes, .length = &first_bytes};
  BH_RETURN_IF_ERROR(link_->Transfer(LinkKind::kBus, {}, {first}));
  int64_t message_bytes = 0;
  BH_CHECK(first_bytes >= kHeadBytes);
  std::memcpy(&message_bytes, first_.data(), kHeadBytes);
  const int64_t text_bytes = std::min(message_bytes, kFirstTextBytes);
  BH_CHECK(text_bytes == first_bytes - kHeadBytes);
  message->assign(first_, kHeadBytes, text_bytes);
  if (message_bytes > text_bytes) {
    message->resize(message_bytes);
    const Incoming rest{.node = parent,
                        .data = message->data() + text_bytes,
                        .row_bytes = message_bytes - text_bytes};
    BH_RETURN_IF_ERROR(link_->Transfer(LinkKind::kBus, {}, {rest}));
  }
  BH_RETURN_IF_ERROR(Forward(*message));
  return node_.Publish(*message);
}

absl::Status TreeBus::Forward(absl::string_view message) {
  const auto bytes = static_cast<int64_t>(message.size());
  const int64_t text_bytes = std::min(bytes, kFirstTextBytes);
  first_.assign(reinterpret_cast<const char*>(&bytes), kHeadBytes);
  first_.append(message.data(), text_bytes);
  std::vector<Outgoing> sends;
  for (const int child : ChildrenOf(link_->node(), link_->num_nodes())) {
    sends.push_back({child, first_.data(), static_cast<int64_t>(first_.size())});
    if (bytes > text_bytes) {
      sends.push_back({child, message.data() + text_bytes, bytes - text_bytes});
    }
  }
  return sends.empty() ? absl::OkStatus() : link_->Transfer(LinkKind::kBus, sends, {});
}

namespace {

// A waiting leader polls every 5 ms, less often on a busy machine.
constexpr int64_t kMaxPollNanos = 2'000'000'000;

}  // namespace

MultiHostLiveness::MultiHostLiveness(ShmLiveness& node, const RankTopology& world,
                                     const Region& region, HostLiveness* host_liveness)
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

MultiHostLiveness::~MultiHostLiveness() {
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

void MultiHostLiveness::Beat() {
  node_.Beat();
  if (host_liveness_ != nullptr) host_liveness_->Beat();
}

// This node's knowledge of its own ranks is closer to the cause than reports from elsewhere.
absl::Status MultiHostLiveness::Check(absl::Duration silence) {
  absl::Status lost = node_.Check(silence);
  if (lost.ok() && host_liveness_ != nullptr) lost = host_liveness_->Check(silence);
  return lost;
}

void MultiHostLiveness::Rearm() {
  node_.Rearm();
  if (host_liveness_ != nullptr) host_liveness_->Rearm();
}

Stragglers MultiHostLiveness::FindStragglers() {
  const int node = region_.awaited_node();
  if (node < 0) {
    Stragglers here = node_.FindStragglers();
    here.elsewhere = here.names.empty();
    return here;
  }
  // A leader that waits for another host keeps polling; if it stops polling, it hangs itself.
  if (MonotonicNanos() - region_.polled_ns() > kMaxPollNanos) return node_.StragglerOf(0);
  const std::vector<int> ranks = world_.RanksOf(node);
  const std::string& host = world_.hosts[ranks[0]];
  if (ranks.size() == 1) {
    return {
        .names = world_.NameOf(ranks[0]), .elsewhere = true, .lost = world_.LostRankAt(ranks[0])};
  }
  return {.names = absl::StrCat("ranks ", absl::StrJoin(ranks, ", "), " (host ", host, ")"),
          .elsewhere = true};
}

void MultiHostLiveness::Abort(const absl::Status& why) {
  node_.Abort(why);
  if (host_liveness_ != nullptr) host_liveness_->Abort(why);
}

void MultiHostLiveness::Ending() {
  node_.Ending();
  if (host_liveness_ != nullptr) host_liveness_->Ending();
}

bool MultiHostLiveness::CoordinatorEnded() {
  return world_.node() == 0 ? node_.CoordinatorEnded() : host_liveness_->CoordinatorEnded();
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
