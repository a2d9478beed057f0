// TreeBus: the control bus of a group on several nodes. Messages go down a binomial tree of
// leaders, and on each node through the node's own bus.
#pragma once

#include <string>

#include "comm/control_bus.h"
#include "comm/leader_link.h"

namespace bulkhead {

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

}  // namespace bulkhead
