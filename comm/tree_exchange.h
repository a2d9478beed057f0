// TreeExchange: the exchange of a group on several nodes: each node gathers, the leaders exchange
// the results, and each distributes them on its node.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/exchange.h"
#include "comm/leader_link.h"
#include "comm/region.h"

namespace bulkhead {

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

}  // namespace bulkhead
