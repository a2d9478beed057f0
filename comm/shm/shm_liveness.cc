#include "comm/shm/shm_liveness.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/lost_rank.h"
#include "base/status.h"

namespace bulkhead {
namespace {

absl::Status Lost(const std::string& text, const LostRank& rank = {}) {
  return WithLostRank(WithExitCode(absl::UnavailableError(text), ExitCode::kRankLost), rank);
}

}  // namespace

ShmLiveness::ShmLiveness(std::shared_ptr<Region> region, RankTopology topology, int64_t (*now_ns)())
    : region_(std::move(region)), topology_(std::move(topology)), now_ns_(now_ns) {}

ShmLiveness::~ShmLiveness() {
  for (Peer& peer : peers_) Forget(peer);
  Forget(launcher_);
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

absl::Status ShmLiveness::WatchProcesses(int64_t parent_pid) {
  const absl::MutexLock lock(&mutex_);
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return absl::ResourceExhaustedError("epoll_create1 failed");
  for (int rank = 0; rank < region_->size(); ++rank) {
    if (rank == region_->rank()) continue;
    const int64_t pid = region_->liveness(rank).pid.load();
    BH_RETURN_IF_ERROR(Watch(peers_[rank], pid));
    peers_[rank].oom_kills = ReadOomKills(pid);
  }
  launcher_pid_ = parent_pid;
  return parent_pid == 0 ? absl::OkStatus() : Watch(launcher_, parent_pid);
}

absl::Status ShmLiveness::Watch(Peer& peer, int64_t pid) {
  peer.pid_fd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
  if (peer.pid_fd < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot watch process ", pid, ": ", std::strerror(errno)));
  }
  epoll_event event = {};
  event.events = EPOLLIN;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, peer.pid_fd, &event) != 0) {
    return absl::ResourceExhaustedError("epoll_ctl failed");
  }
  return absl::OkStatus();
}

// Also removes it from the epoll set, which would otherwise stay readable.
void ShmLiveness::Forget(Peer& peer) {
  if (peer.pid_fd >= 0) close(peer.pid_fd);
  peer.pid_fd = -1;
}

bool ShmLiveness::HasEnded(const Peer& peer) const {
  pollfd watched = {peer.pid_fd, POLLIN, 0};
  return peer.pid_fd >= 0 && poll(&watched, 1, 0) == 1;
}

void ShmLiveness::Beat() { region_->liveness(region_->rank()).beats.fetch_add(1); }

void ShmLiveness::Ending() {
  ending_.store(true);
  region_->liveness(region_->rank()).ending.store(1);
}

bool ShmLiveness::CoordinatorEnded() {
  const absl::MutexLock lock(&mutex_);
  if (region_->rank() == 0) return false;
  return peers_[0].pid_fd < 0 || HasEnded(peers_[0]);
}

absl::Status ShmLiveness::Check(absl::Duration silence) {
  const absl::MutexLock lock(&mutex_);
  if (!lost_.ok()) return lost_;
  const int64_t now_ns = now_ns_();
  // Another rank's earlier finding is closer to the cause.
  if (!ending_.load()) lost_ = region_->abort_status();
  for (int rank = 0; lost_.ok() && rank < region_->size(); ++rank) {
    if (rank != region_->rank()) lost_ = CheckRank(rank, now_ns, silence);
  }
  if (lost_.ok()) lost_ = CheckLauncher();
  return lost_;
}

absl::Status ShmLiveness::CheckRank(int rank, int64_t now_ns, absl::Duration silence) {
  Peer& peer = peers_[rank];
  RankLiveness& liveness = region_->liveness(rank);
  const bool ended = HasEnded(peer);
  // Read after its end was observed: a rank sets `ending` before it ends.
  const bool in_order = ending_.load() || liveness.ending.load() != 0;
  if (ended && in_order) Forget(peer);
  if (in_order) return absl::OkStatus();
  if (ended) return Ended(rank);
  const uint64_t beats = liveness.beats.load();
  if (beats != peer.beats) {
    peer.beats = beats;
    peer.heard_ns = now_ns;
  }
  const int64_t silent_ns = now_ns - peer.heard_ns;
  if (beats == 0 || silent_ns <= absl::ToInt64Nanoseconds(silence)) return absl::OkStatus();
  return Lost(absl::StrFormat("%s was silent for %.1f s", NameOf(rank),
                              static_cast<double>(silent_ns) * 1e-9),
              topology_.LostRankAt(rank));
}

// A rank killed by the kernel cannot report it; its cgroup can.
absl::Status ShmLiveness::Ended(int rank) const {
  const std::string oom = OomKillsText(peers_[rank].oom_kills);
  const LostRank lost = topology_.LostRankAt(rank);
  if (oom.empty()) return Lost(absl::StrCat(NameOf(rank), " ended"), lost);
  return Lost(absl::StrCat(NameOf(rank), " ended: ", oom,
                           "; give the host more memory, or the ranks less "
                           "(--device-memory, --reserve)"),
              lost);
}

absl::Status ShmLiveness::CheckLauncher() {
  if (!HasEnded(launcher_)) return absl::OkStatus();
  Forget(launcher_);
  if (ending_.load()) return absl::OkStatus();
  return Lost(absl::StrCat("the launcher (pid ", launcher_pid_, ") ended"));
}

void ShmLiveness::Rearm() {
  const absl::MutexLock lock(&mutex_);
  for (Peer& peer : peers_) peer.heard_ns = now_ns_();
}

void ShmLiveness::ReportIdle(absl::Duration still) {
  region_->liveness(region_->rank()).idle_ns.store(absl::ToInt64Nanoseconds(still));
}

Stragglers ShmLiveness::StragglerOf(int local_rank) const {
  Stragglers one;
  one.names = NameOf(local_rank);
  one.lost = topology_.LostRankAt(local_rank);
  one.still = absl::Nanoseconds(region_->liveness(local_rank).idle_ns.load());
  return one;
}

// In a step the counts in the exchange are equal; between two phases of the start the counts in
// sums are.
Stragglers ShmLiveness::FindStragglers() {
  const Stragglers in_sums = RanksBehind(&Region::sums);
  return in_sums.names.empty() ? RanksBehind(&Region::exchange) : in_sums;
}

Stragglers ShmLiveness::RanksBehind(Signal& (Region::*signal)(int)) const {
  const auto arrivals = [&](int rank) { return ((*region_).*signal)(rank).value.load(); };
  uint32_t furthest = arrivals(0);
  for (int rank = 1; rank < region_->size(); ++rank) {
    if (HasReached(arrivals(rank), furthest)) furthest = arrivals(rank);
  }
  Stragglers stragglers;
  for (int rank = 0; rank < region_->size(); ++rank) {
    if (HasReached(arrivals(rank), furthest)) continue;
    const Stragglers one = StragglerOf(rank);
    if (stragglers.names.empty()) {
      stragglers = one;
      continue;
    }
    stragglers.still = std::min(stragglers.still, one.still);
    stragglers.lost = {};
    absl::StrAppend(&stragglers.names, ", ", one.names);
  }
  return stragglers;
}

}  // namespace bulkhead
