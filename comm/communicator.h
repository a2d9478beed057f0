// Communicator: sums, gathers and broadcasts between the ranks of a group. Enqueued on the rank's
// device like a kernel; called by the rank's main thread only. An error is final for the group:
// UNAVAILABLE names the rank that was lost, ABORTED means that another rank gave up, INTERNAL that
// ranks called different things.
//
// Sums follow one binary tree over the ranks, independent of the message's size: [0, n) is split
// into [0, ceil(n/2)) and the rest, all the way down; for 2, 4 and 8 ranks that continues the tree
// of slices of memory/linear.h. The result has equal bits on every rank.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/matrix.h"

namespace bulkhead {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Where this rank writes its partial sum of the next AllReduceSum: [rows, cols] f32, dense. The
  // caller's to write until that AllReduceSum, which must be the next call; never after it, as the
  // other ranks read it. rows * cols is bounded by the limits given when the communicator was
  // created.
  virtual MatrixView PartialSum(int64_t rows, int64_t cols) = 0;

  // The sum of all ranks' partial sums of that shape, valid until the next call of PartialSum.
  virtual absl::StatusOr<ConstMatrixView> AllReduceSum() = 0;

  // On rank 0 puts the ranks' parts side by side in `out` [rows, sum of the ranks' cols]; the other
  // ranks pass an empty `out`. `cols_of_rank` [size] is the same on every rank, and `part` is f32.
  virtual absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                                  MatrixView out) = 0;

  // Rank 0's `values`, on its device, become every rank's; 2 * count is bounded as a sum is. What
  // is here does for ranks in host memory: halves that the others add zeroes to.
  virtual absl::Status Broadcast(int32_t* values, int64_t count);
};

// How tensors travel between ranks: through host memory that they share; from devices by way of it
// (staged_communicator.h); or between devices, by NCCL (nccl_communicator.h).
enum class Transport { kShared, kStaged, kNccl };

// "shared memory", "staged", "nccl".
const char* TransportName(Transport transport);

// What a communicator must be able to carry; sizes its part of the ledger.
struct CommLimits {
  int64_t max_sum_elements = 0;     // rows x cols of the largest AllReduceSum
  int64_t max_gather_elements = 0;  // rows x the largest rank's cols of the largest GatherCols
  Transport transport = Transport::kShared;
};

// What a rank of a group of `size` ranks takes of its device for these limits. kShared: its slots,
// its private result and its share of the shared one; kStaged: a partial sum, which becomes the
// sum; kNccl: a partial sum, a part and all ranks' parts. The same on every rank, and on every
// host.
int64_t CommunicationBytes(const CommLimits& limits, int size);

}  // namespace bulkhead
