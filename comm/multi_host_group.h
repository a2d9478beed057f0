// MultiHostGroup: a group on several nodes: a ShmGroup on each, a LeaderLink between their leaders
// for messages, and a HostLiveness between their ranks.
#pragma once

#include <memory>

#include "comm/group.h"
#include "comm/host_liveness.h"
#include "comm/leader_link.h"
#include "comm/shm_group.h"
#include "comm/tree_bus.h"
#include "comm/tree_exchange.h"

namespace bulkhead {

// A node's own liveness, and that of other nodes if this rank has a HostLiveness.
class NodesLiveness final : public GroupLiveness {
 public:
  // `region`: the node's. `host_liveness` may be null, as in HostLiveness::Connect.
  NodesLiveness(ShmLiveness& node, const RankTopology& world, const Region& region,
                HostLiveness* host_liveness);
  NodesLiveness(const NodesLiveness&) = delete;
  NodesLiveness& operator=(const NodesLiveness&) = delete;
  ~NodesLiveness() override;
  void Beat() override;
  absl::Status Check(absl::Duration silence) override;
  void Rearm() override;
  void ReportIdle(absl::Duration still) override { node_.ReportIdle(still); }
  Stragglers FindStragglers() override;
  int fd() const override { return epoll_fd_ >= 0 ? epoll_fd_ : node_.fd(); }
  void Abort(const absl::Status& why) override;
  void Ending() override;

 private:
  ShmLiveness& node_;
  const RankTopology& world_;
  const Region& region_;
  HostLiveness* host_liveness_;
  int epoll_fd_ = -1;  // watches both
};

class MultiHostGroup final : public Group {
 public:
  // `link` is null except on the node's leader; `host_liveness` may be null as in
  // HostLiveness::Connect. `share` shares memory between the ranks of this node.
  MultiHostGroup(std::shared_ptr<Region> region, std::unique_ptr<ShmGroup> node,
                 const RankTopology& world, std::unique_ptr<LeaderLink> link,
                 std::unique_ptr<HostLiveness> host_liveness, ShareMemory share);
  GroupExchange& exchange() override { return exchange_; }
  ControlBus& bus() override { return bus_; }
  GroupLiveness& liveness() override { return liveness_; }
  void AllowSpinning(bool allowed) override;
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const CommLimits& limits,
                                                        MemoryLedger& ledger) override;
  void Leave(const absl::Status& status) override;

 private:
  const RankTopology world_;
  std::shared_ptr<Region> region_;
  std::unique_ptr<ShmGroup> node_;
  std::unique_ptr<LeaderLink> link_;
  std::unique_ptr<HostLiveness> host_liveness_;
  ShareMemory share_;
  TreeExchange exchange_;
  TreeBus bus_;
  NodesLiveness liveness_;
};

}  // namespace bulkhead
