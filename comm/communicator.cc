#include "comm/communicator.h"

#include "base/status.h"

namespace bulkhead {

// 16-bit halves are exact in f32, and so are their sums with zeroes.
absl::Status Communicator::Broadcast(int32_t* values, int64_t count) {
  const MatrixView partial = PartialSum(2, count);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = rank() == 0 ? static_cast<uint32_t>(values[i]) : 0;
    partial.F32(0)[i] = static_cast<float>(bits >> 16);
    partial.F32(1)[i] = static_cast<float>(bits & 0xFFFF);
  }
  BH_ASSIGN_OR_RETURN(const ConstMatrixView sum, AllReduceSum());
  for (int64_t i = 0; i < count; ++i) {
    const auto high = static_cast<uint32_t>(sum.F32(0)[i]);
    values[i] = static_cast<int32_t>(high << 16 | static_cast<uint32_t>(sum.F32(1)[i]));
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
