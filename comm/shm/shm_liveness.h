// ShmLiveness: heartbeats in the Region, and process descriptors (pidfd) of the other ranks and of
// the launcher. A killed rank is detected in milliseconds, a stopped one by its silence.
//
// The launcher is also watched. After mpirun dies, Open MPI ends its ranks about a second later,
// srun at once, but only if the PMIx client's thread still works; PDEATHSIG would follow the
// launcher's thread, not its process, and is lost when a wrapper calls exec. So the end of the
// parent counts as a loss.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "comm/group.h"
#include "comm/shm/region.h"
#include "memory/oom_kills.h"

namespace bulkhead {

class ShmLiveness final : public GroupLiveness {
 public:
  // `now_ns`: a monotonic clock.
  ShmLiveness(std::shared_ptr<Region> region, RankTopology topology, int64_t (*now_ns)());
  ShmLiveness(const ShmLiveness&) = delete;
  ShmLiveness& operator=(const ShmLiveness&) = delete;
  ~ShmLiveness() override;

  // Before any thread starts: watches the processes whose ids are in the region, except this one,
  // and `parent_pid` (0: none). UNAVAILABLE if one has already ended.
  absl::Status WatchProcesses(int64_t parent_pid);

  void Beat() override;
  absl::Status Check(absl::Duration silence) override;
  void Rearm() override;
  void ReportIdle(absl::Duration still) override;
  Stragglers FindStragglers() override;
  // FindStragglers for one rank.
  Stragglers StragglerOf(int local_rank) const;
  // A rank of this host, as named in messages.
  std::string NameOf(int local_rank) const { return RankName(topology_, *region_, local_rank); }
  int fd() const override { return epoll_fd_; }
  void Abort(const absl::Status& why) override { region_->Abort(why); }
  void Ending() override;
  // Whether local rank 0, taken for the group's rank 0, has ended.
  bool CoordinatorEnded() override;

 private:
  struct Peer {
    int pid_fd = -1;
    OomKills oom_kills;    // of its cgroup, when watching began
    uint64_t beats = 0;    // last observed
    int64_t heard_ns = 0;  // time of the last change
  };
  absl::Status Watch(Peer& peer, int64_t pid);
  bool HasEnded(const Peer& peer) const;
  void Forget(Peer& peer);
  // The ranks whose count in `signal` is below the highest.
  Stragglers RanksBehind(Signal& (Region::*signal)(int)) const;
  absl::Status Ended(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRank(int rank, int64_t now_ns, absl::Duration silence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckLauncher() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::shared_ptr<Region> region_;
  const RankTopology topology_;
  int64_t (*const now_ns_)();
  int epoll_fd_ = -1;
  std::atomic<bool> ending_ = false;
  absl::Mutex mutex_;
  std::array<Peer, kMaxLocalRanks> peers_ ABSL_GUARDED_BY(mutex_);
  Peer launcher_ ABSL_GUARDED_BY(mutex_);
  int64_t launcher_pid_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace bulkhead
