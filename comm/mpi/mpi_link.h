// MpiLink: leader messages over MPI. Like MpiSession, calls MPI on the main thread only.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/shm/region.h"
#include "comm/tree/leader_link.h"

namespace bulkhead {

class MpiLink final : public LeaderLink {
 public:
  // `leaders`: rank of each node's leader. `region`: this node's; its abort ends waits.
  MpiLink(int node, std::vector<int> leaders, std::shared_ptr<Region> region)
      : node_(node), leaders_(std::move(leaders)), region_(std::move(region)) {}
  int node() const override { return node_; }
  int num_nodes() const override { return static_cast<int>(leaders_.size()); }
  void set_may_spin(bool may_spin) override { may_spin_ = may_spin; }
  absl::Status Transfer(LinkKind kind, absl::Span<const Outgoing> sends,
                        absl::Span<const Incoming> receives, int64_t deadline_ns) override;

 private:
  struct Batch;
  absl::Status Begin(LinkKind kind, Batch& batch);
  absl::Status Await(Batch& batch, int64_t deadline_ns);

  const int node_;
  const std::vector<int> leaders_;
  const std::shared_ptr<Region> region_;
  bool may_spin_ = false;
  // The first error, returned by every later Transfer: MPI still holds the buffers of abandoned
  // messages and could write to them in any further call.
  absl::Status failed_;
};

}  // namespace bulkhead
