#include "base/arithmetic.h"
#include "comm/communicator.h"
#include "comm/nccl_communicator.h"
#include "comm/shm_communicator.h"
#include "comm/staged_communicator.h"

namespace bulkhead {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kAlignBytes = 256;
constexpr int64_t kNcclGranuleBytes = int64_t{2} << 20;

}  // namespace

NcclWindow::NcclWindow(const CommLimits& limits, int size)
    : part_offset_bytes(RoundUp(limits.max_sum_elements * kFloatBytes, kAlignBytes)),
      whole_offset_bytes(part_offset_bytes +
                         RoundUp(limits.max_gather_elements * kFloatBytes, kAlignBytes)),
      total_bytes(RoundUp(whole_offset_bytes + size * limits.max_gather_elements * kFloatBytes,
                          kNcclGranuleBytes)) {}

const char* TransportName(Transport transport) {
  switch (transport) {
    case Transport::kShared:
      return "shared memory";
    case Transport::kStaged:
      return "staged";
    case Transport::kNccl:
      break;
  }
  return "nccl";
}

int64_t CommunicationBytes(const CommLimits& limits, int size) {
  switch (limits.transport) {
    case Transport::kShared:
      break;
    case Transport::kStaged:
      return StagedPartialBytes(limits);
    case Transport::kNccl:
      return NcclWindow(limits, size).total_bytes;
  }
  const CommunicationLayout layout(limits, size);
  return layout.MappedBytes() + layout.private_result_bytes;
}

}  // namespace bulkhead
