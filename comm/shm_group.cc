#include "comm/shm_group.h"

#include <utility>

#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {
ShmGroup::ShmGroup(std::shared_ptr<Region> region, const RankTopology& topology, ShareMemory share)
    : region_(std::move(region)),
      share_(share),
      exchange_(region_, topology),
      bus_(region_),
      liveness_(region_, topology, &MonotonicNanos) {
  region_->set_may_spin(topology.local_size <= topology.local_cores);
}

absl::StatusOr<Buffer> TakeCommunication(const CommunicationLayout& layout, GroupExchange& exchange,
                                         MemoryLedger& ledger) {
  absl::Status taken = ledger.TakeMapped(MemoryCategory::kCommunication, layout.MappedBytes());
  absl::StatusOr<Buffer> result = Buffer();
  if (taken.ok()) {
    result = ledger.Take(MemoryCategory::kCommunication, layout.private_result_bytes);
    taken = result.status();
  }
  taken = WithExitCode(taken, ExitCode::kDoesNotFit);
  BH_RETURN_IF_ERROR(Agree(exchange, kConnectPhase, taken, kConnectTimeout));
  return result;
}

absl::StatusOr<std::unique_ptr<Communicator>> ShmGroup::Connect(const CommLimits& limits,
                                                                MemoryLedger& ledger) {
  const CommunicationLayout layout(limits, region_->size());
  BH_ASSIGN_OR_RETURN(Buffer result, TakeCommunication(layout, exchange_, ledger));
  // One more page, so that the mapping is not empty when the limits are 0.
  BH_ASSIGN_OR_RETURN(
      SharedMemory tensors,
      share_(exchange_, region_->size() * layout.MappedBytes() + kPageBytes, kConnectTimeout));
  return std::make_unique<ShmCommunicator>(region_, limits, std::move(tensors), std::move(result));
}

void ShmGroup::Leave(const absl::Status& status) {
  liveness_.Ending();
  if (!IsAgreed(status)) region_->Abort(status);
}

}  // namespace bulkhead
