// ShmLiveness: heartbeats in the Region, and process descriptors (pidfd) of the other ranks and of
// the launcher. A killed rank is known in milliseconds, a stopped one by its silence.
//
// The launcher is watched too. Open MPI ends ranks whose mpirun is gone about a second later, srun
// at once, but only while the PMIx client's own thread works; PDEATHSIG would name the launcher's
// thread, not its process, and is lost over exec of a wrapper. So a parent that ends is a loss like
// any other.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "comm/group.h"
#include "comm/region.h"
#include "comm/shm_exchange.h"
#include "memory/oom_kills.h"

namespace bulkhead {

class ShmLiveness final : public GroupLiveness {
 public:
  // `now_ns`: a monotonic clock.
  ShmLiveness(std::shared_ptr<Region> region, RankTopology topology, int64_t (*now_ns)());
  ShmLiveness(const ShmLiveness&) = delete;
  ShmLiveness& operator=(const ShmLiveness&) = delete;
  ~ShmLiveness() override;

  // Before any thread: watches the processes whose ids the region holds, but this one, and
  // `parent_pid` (0: none). UNAVAILABLE when one has ended already.
  absl::Status WatchProcesses(int64_t parent_pid);

  void Beat() override;
  absl::Status Check(absl::Duration silence) override;
  void Rearm() override;
  void StoodStill(absl::Duration still) override;
  Stragglers FindStragglers() override;
  // As Stragglers, of this one.
  Stragglers StragglerOf(int local_rank) const;
  // What messages call a rank of this host.
  std::string NameOf(int local_rank) const { return RankName(topology_, *region_, local_rank); }
  int fd() const override { return epoll_fd_; }
  void Abort(const absl::Status& why) override { region_->Abort(why); }
  void Ending() override;

 private:
  struct Peer {
    int pid_fd = -1;
    OomKills oom_kills;    // of its cgroup, at first
    uint64_t beats = 0;    // as last seen
    int64_t heard_ns = 0;  // when they last changed
  };
  absl::Status Watch(Peer& peer, int64_t pid);
  bool HasEnded(const Peer& peer) const;
  void Forget(Peer& peer);
  absl::Status Ended(int rank) const;
  absl::Status CheckRank(int rank, int64_t now_ns, absl::Duration silence);
  absl::Status CheckLauncher();

  std::shared_ptr<Region> region_;
  const RankTopology topology_;
  int64_t (*const now_ns_)();
  int epoll_fd_ = -1;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;  // guards what follows
  std::array<Peer, kMaxLocalRanks> peers_;
  Peer launcher_;
  int64_t launcher_pid_ = 0;
  absl::Status lost_;
};

}  // namespace bulkhead
