// MultiHostGroup: a group on several nodes: a ShmGroup on each, a LeaderLink between their leaders
// for messages, and a HostLiveness between their ranks.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/control_bus.h"
#include "comm/exchange.h"
#include "comm/group.h"
#include "comm/liveness/host_liveness.h"
#include "comm/shm/region.h"
#include "comm/shm/shm_group.h"
#include "comm/tree/leader_link.h"

namespace bulkhead {

// Each node gathers, the leaders exchange the results, and each distributes them on its node.
class TreeExchange final : public GroupExchange {
 public:
  // `node`: the exchange of this node's ranks, who share `region`. `link`: null except on the
  // leader.
  TreeExchange(GroupExchange& node, const Region& region, LeaderLink* link, RankTopology world)
      : node_(node), region_(region), link_(link), topology_(std::move(world)) {}
  const RankTopology& topology() const override { return topology_; }
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                     absl::Duration timeout) override;

 private:
  absl::Status SwapBetweenNodes(int64_t deadline_ns);
  absl::Status TransferOrName(const std::vector<Outgoing>& sends,
                              const std::vector<Incoming>& receives, int64_t deadline_ns);

  GroupExchange& node_;
  const Region& region_;
  LeaderLink* link_;
  RankTopology topology_;
  // Buffers in flight between nodes. Kept after a timeout: MPI may still write to them.
  std::vector<int64_t> lengths_;    // [size]
  std::vector<std::string> texts_;  // [size]
  absl::Status given_up_;
};

// Messages go down a binomial tree of leaders, and on each node through the node's own bus.
class TreeBus final : public ControlBus {
 public:
  // `node`: this node's bus, on which the leader publishes. `link`: null except on the leader.
  TreeBus(ControlBus& node, LeaderLink* link) : node_(node), link_(link) {}
  absl::Status Publish(absl::string_view message) override;
  absl::Status Receive(std::string* message) override;

 private:
  absl::Status Forward(absl::string_view message);

  ControlBus& node_;
  LeaderLink* link_;
  std::string first_;  // the first piece of a message, as sent
};

// A node's own liveness, and other nodes' if this rank has a HostLiveness.
class MultiHostLiveness final : public GroupLiveness {
 public:
  // `region`: the node's. `host_liveness` may be null, as in HostLiveness::Connect.
  MultiHostLiveness(ShmLiveness& node, const RankTopology& world, const Region& region,
                    HostLiveness* host_liveness);
  MultiHostLiveness(const MultiHostLiveness&) = delete;
  MultiHostLiveness& operator=(const MultiHostLiveness&) = delete;
  ~MultiHostLiveness() override;
  void Beat() override;
  absl::Status Check(absl::Duration silence) override;
  void Rearm() override;
  void ReportIdle(absl::Duration still) override { node_.ReportIdle(still); }
  Stragglers FindStragglers() override;
  int fd() const override { return epoll_fd_ >= 0 ? epoll_fd_ : node_.fd(); }
  void Abort(const absl::Status& why) override;
  void Ending() override;
  bool CoordinatorEnded() override;

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
  MultiHostLiveness liveness_;
};

}  // namespace bulkhead
