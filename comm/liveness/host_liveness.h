// HostLiveness: liveness between hosts: every rank of another node has a TCP connection to rank 0,
// besides MPI, which detects neither a stopped peer nor a broken link. Both ends of a connection
// authenticate with the key that rank 0 distributed at start, and every frame carries a MAC. Losses
// detected within a node (shm/shm_liveness.h) are forwarded.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/socket.h"
#include "comm/group.h"
#include "comm/liveness/sealed_frames.h"

namespace bulkhead {

class HostLiveness final : public GroupLiveness {
 public:
  // Collective over `exchange`, whose topology has several nodes; ends in agreement. All listeners
  // are closed on return. Null on the ranks of node 0 except rank 0. `include` as in OwnAddresses;
  // `now_ns`: a monotonic clock. Errors carry ExitCode::kGroupNotUp.
  static absl::StatusOr<std::unique_ptr<HostLiveness>> Connect(GroupExchange& exchange,
                                                               const std::string& include,
                                                               absl::Duration timeout,
                                                               int64_t (*now_ns)());
  HostLiveness(const HostLiveness&) = delete;
  HostLiveness& operator=(const HostLiveness&) = delete;
  ~HostLiveness() override;

  void Beat() override;
  absl::Status Check(absl::Duration silence) override;
  void Rearm() override;
  void ReportIdle(absl::Duration) override {}  // evaluated on its own host only
  Stragglers FindStragglers() override { return {}; }
  int fd() const override { return epoll_fd_; }
  // Sent to rank 0, which forwards it to the others.
  void Abort(const absl::Status& why) override;
  void Ending() override;
  bool CoordinatorEnded() override;

 private:
  // The other end of a connection.
  struct Peer {
    Peer(std::string peer_name, int peer_rank, int peer_node, Socket connected,
         const std::string& key, bool to_rank0);
    LostRank lost_rank() const { return {rank, host}; }
    std::string name;  // "rank 2 (host b, pid 4711)"
    std::string host;
    int rank = 0;
    int node = 0;
    Socket socket;
    FrameSealer sealer;
    FrameOpener opener;
    std::string unsent;
    int64_t heard_ns = 0;  // 0 until the first heartbeat
    bool ending = false;
    bool gone = false;
    int64_t gone_ns = 0;
  };
  explicit HostLiveness(int64_t (*now_ns)()) : now_ns_(now_ns) {}
  absl::Status AcceptAll(const RankTopology& topology, const std::vector<std::string>& names,
                         const std::vector<ListeningSocket>& listeners, const std::string& key,
                         int64_t deadline_ns);
  absl::Status ReachRank0(const std::string& name, int rank, const std::string& ticket,
                          int64_t deadline_ns);
  absl::Status Watch();
  void Send(Peer& peer, FrameKind kind, absl::string_view text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Flush(Peer& peer);
  absl::Status Drain(Peer& peer, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Take(Peer& peer, const Frame& frame, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckPeer(Peer& peer, int64_t now_ns, absl::Duration silence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasNeighbours(const Peer& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Silent(const Peer& peer, int64_t now_ns, absl::Duration silence) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  int64_t (*const now_ns_)();
  int epoll_fd_ = -1;
  std::atomic<bool> ending_ = false;
  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<Peer>> peers_ ABSL_GUARDED_BY(mutex_);  // by rank
  bool abort_sent_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace bulkhead
