// TreeExchange: the exchange of a group on several nodes: each node gathers, the leaders swap what
// their nodes have, and each hands on to its node what came.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/exchange.h"
#include "comm/leader_link.h"

namespace bulkhead {

class TreeExchange final : public GroupExchange {
 public:
  // `node`: the exchange of this node's ranks. `link`: null but on the leader.
  TreeExchange(GroupExchange& node, LeaderLink* link, RankTopology world)
      : node_(node), link_(link), topology_(std::move(world)) {}
  const RankTopology& topology() const override { return topology_; }
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                     absl::Duration timeout) override;

 private:
  absl::Status SwapBetweenNodes(std::vector<std::string>& all, int64_t deadline_ns);
  absl::Status TransferOrName(const std::vector<Outgoing>& sends,
                              const std::vector<Incoming>& receives, int64_t deadline_ns);

  GroupExchange& node_;
  LeaderLink* link_;
  RankTopology topology_;
};

}  // namespace bulkhead
