// ShmGroup: a group whose ranks share a Region, as threads or as processes of one host; its
// exchange and its control bus.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/control_bus.h"
#include "comm/exchange.h"
#include "comm/group.h"
#include "comm/shm/region.h"
#include "comm/shm/shm_communicator.h"
#include "comm/shm/shm_liveness.h"

namespace bulkhead {

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

// A ring of chunks with one writer and many readers. Readers sleep in a futex.
class ShmBus final : public ControlBus {
 public:
  explicit ShmBus(std::shared_ptr<Region> region) : region_(std::move(region)) {}
  absl::Status Publish(absl::string_view message) override;
  absl::Status Receive(std::string* message) override;

 private:
  std::shared_ptr<Region> region_;
  uint32_t chunks_ = 0;  // published by the writer, or consumed by this reader
};

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

// What the processes of one host share: their whole group, or their part of one on several hosts.
struct HostPart {
  std::shared_ptr<Region> region;
  std::unique_ptr<ShmGroup> group;
};
// Collective over `bootstrap`, which has only this host's ranks and is not used afterwards; ends in
// their agreement. UNIMPLEMENTED if there are too many, FAILED_PRECONDITION if the ranks cannot see
// each other's processes (ExitCode::kGroupNotUp).
absl::StatusOr<HostPart> NewHostPart(GroupExchange& bootstrap, absl::Duration timeout);

}  // namespace bulkhead
