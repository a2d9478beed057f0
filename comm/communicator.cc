#include "comm/communicator.h"

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/status.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/one_shot/one_shot_communicator.h"
#include "comm/shm/shm_communicator.h"
#include "comm/staged/staged_communicator.h"

namespace bulkhead {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kAlignBytes = 256;
constexpr int64_t kNcclGranuleBytes = int64_t{2} << 20;

}  // namespace

void Communicator::AllReduceSumNorm(const ResidualNorm& /*norm*/) { BH_CHECK(false); }

absl::Status Communicator::GatherRows(ConstMatrixView /*part*/,
                                      absl::Span<const int64_t> /*cols_of_rank*/,
                                      absl::Span<const int> /*rank_of_row*/, MatrixView /*out*/) {
  return absl::UnimplementedError("rows are divided among ranks in host memory alone");
}

// 16-bit halves are exact in f32, and so are their sums with zeroes.
absl::Status Communicator::Broadcast(int32_t* values, int64_t count) {
  const MatrixView partial = PartialSum(2, count);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = rank() == 0 ? static_cast<uint32_t>(values[i]) : 0;
    partial.F32(0)[i] = static_cast<float>(bits >> 16);
    partial.F32(1)[i] = static_cast<float>(bits & 0xFFFF);
  }
  BH_ASSIGN_OR_RETURN(const ConstMatrixView sum, AllReduceSumF32());
  for (int64_t i = 0; i < count; ++i) {
    const auto high = static_cast<uint32_t>(sum.F32(0)[i]);
    values[i] = static_cast<int32_t>(high << 16 | static_cast<uint32_t>(sum.F32(1)[i]));
  }
  return absl::OkStatus();
}

NcclWindow::NcclWindow(const CommLimits& limits, int size)
    : rounded_offset_bytes(RoundUp(limits.max_sum_elements * kFloatBytes, kAlignBytes)),
      part_offset_bytes(
          rounded_offset_bytes +
          (limits.sum_dtype == DType::kF32
               ? 0
               : RoundUp(limits.max_sum_elements * DTypeBytes(limits.sum_dtype), kAlignBytes))),
      whole_offset_bytes(part_offset_bytes +
                         RoundUp(limits.max_gather_elements * kFloatBytes, kAlignBytes)),
      total_bytes(RoundUp(whole_offset_bytes + size * limits.max_gather_elements * kFloatBytes,
                          kNcclGranuleBytes)) {}

int64_t CommunicationBytes(const CommLimits& limits, int size) {
  switch (limits.transport) {
    case Transport::kShared:
      break;
    case Transport::kStaged:
      return StagedPartialBytes(limits);
    case Transport::kNccl:
      return NcclWindow(limits, size).total_bytes + OneShotLayout(limits, size).total_bytes;
  }
  const CommunicationLayout layout(limits, size);
  return layout.MappedBytes() + layout.private_result_bytes;
}

}  // namespace bulkhead
