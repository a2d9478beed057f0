// ShmExchange: the exchange of ranks that share a Region.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/exchange.h"
#include "comm/region.h"

namespace bulkhead {

// "rank 2 (host a, pid 4711)".
std::string RankName(const RankTopology& topology, Region& region, int rank);

class ShmExchange final : public GroupExchange {
 public:
  ShmExchange(std::shared_ptr<Region> region, RankTopology topology)
      : region_(std::move(region)), topology_(std::move(topology)) {}
  const RankTopology& topology() const override { return topology_; }
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                     absl::Duration timeout) override;

 private:
  absl::Status AwaitAll(int64_t deadline_ns, absl::Duration timeout);

  std::shared_ptr<Region> region_;
  RankTopology topology_;
  uint32_t rounds_ = 0;  // so far, equal on all ranks
};

}  // namespace bulkhead
