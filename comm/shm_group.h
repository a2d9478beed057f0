// ShmGroup: a group whose ranks share a Region, as threads or as processes.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/group.h"
#include "comm/region.h"
#include "comm/shm_bus.h"
#include "comm/shm_communicator.h"
#include "comm/shm_exchange.h"
#include "comm/shm_liveness.h"

namespace bulkhead {

inline constexpr absl::Duration kConnectTimeout = absl::Minutes(1);
inline constexpr char kConnectPhase[] = "communication buffers";

// Takes this rank's communication memory from the ledger; returns the private part. Ends in
// agreement.
absl::StatusOr<Buffer> TakeCommunication(const CommunicationLayout& layout, GroupExchange& exchange,
                                         MemoryLedger& ledger);

class ShmGroup final : public Group {
 public:
  // `share` creates the tensor memory in Connect.
  ShmGroup(std::shared_ptr<Region> region, const RankTopology& topology, ShareMemory share);
  GroupExchange& exchange() override { return exchange_; }
  ControlBus& bus() override { return bus_; }
  ShmLiveness& liveness() override { return liveness_; }
  void AllowSpinning(bool allowed) override { region_->set_may_spin(allowed); }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const CommLimits& limits,
                                                        MemoryLedger& ledger) override;
  void Leave(const absl::Status& status) override;

 private:
  std::shared_ptr<Region> region_;
  ShareMemory share_;
  ShmExchange exchange_;
  ShmBus bus_;
  ShmLiveness liveness_;
};

}  // namespace bulkhead
