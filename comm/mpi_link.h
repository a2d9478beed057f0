// MpiLink: the leaders' messages over MPI. Like MpiSession it calls MPI on the main thread alone.
#pragma once

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "comm/leader_link.h"

namespace bulkhead {

class MpiLink final : public LeaderLink {
 public:
  // `leaders`: rank of each node's leader. `stopped`: not ok when waits must end, and why.
  MpiLink(int node, std::vector<int> leaders, std::function<absl::Status()> stopped)
      : node_(node), leaders_(std::move(leaders)), stopped_(std::move(stopped)) {}
  int node() const override { return node_; }
  int num_nodes() const override { return static_cast<int>(leaders_.size()); }
  void set_may_spin(bool may_spin) override { may_spin_ = may_spin; }
  absl::Status Transfer(LinkKind kind, absl::Span<const Outgoing> sends,
                        absl::Span<const Incoming> receives, int64_t deadline_ns) override;
  int awaited_node() const override { return awaited_node_.load(std::memory_order_relaxed); }

 private:
  struct Batch;
  absl::Status Begin(LinkKind kind, Batch& batch);
  absl::Status Await(Batch& batch, int64_t deadline_ns);

  const int node_;
  const std::vector<int> leaders_;
  const std::function<absl::Status()> stopped_;
  bool may_spin_ = false;
  std::atomic<int> awaited_node_ = -1;
};

}  // namespace bulkhead
