// Communicator: sums, gathers and broadcasts between the ranks of a group. Enqueued on the rank's
// device like a kernel; called by the rank's main thread only. An error is final for the group:
// UNAVAILABLE names the lost rank, ABORTED means that another rank gave up, INTERNAL that ranks
// issued different calls.
//
// Sums follow one binary tree over the ranks, independent of the message size: [0, n) splits
// recursively into [0, ceil(n/2)) and the rest; for 2, 4 and 8 ranks this continues the tree of
// slices of memory/linear.h. The result is bit-identical on every rank.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/matrix.h"
#include "memory/residual_norm.h"

namespace bulkhead {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The buffer for this rank's partial sum of the next AllReduceSum: [rows, cols] f32, dense.
  // Writable until that AllReduceSum, which must be the next call; not after it, as other ranks
  // read it. rows * cols is bounded by the limits given at creation.
  virtual MatrixView PartialSum(int64_t rows, int64_t cols) = 0;

  // The sum of all ranks' partial sums of that shape, valid until the next call of PartialSum. In
  // f32, or rounded between ranks as CommLimits::sum_dtype says.
  virtual absl::StatusOr<ConstMatrixView> AllReduceSum() = 0;

  // The same in f32 in any case, for numbers that must not be rounded: counts, bits, statistics.
  // This default is for communicators that always sum in f32.
  virtual absl::StatusOr<ConstMatrixView> AllReduceSumF32() { return AllReduceSum(); }

  // Whether AllReduceSumNorm may replace AllReduceSum after PartialSum(rows, cols); AllReduceSum
  // then cannot fail. Equal on every rank.
  virtual bool NormsSum(int64_t /*rows*/, int64_t /*cols*/) const { return false; }

  // Adds the sum to a residual stream and norms the result in one pass. All ranks call it, or none.
  virtual void AllReduceSumNorm(const ResidualNorm& norm);

  // Concatenates the ranks' parts along the columns into `out` on rank 0: [rows, sum of the ranks'
  // cols]; other ranks pass an empty `out`. `cols_of_rank` [size] is equal on every rank; `part` is
  // f32.
  virtual absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                                  MatrixView out) = 0;

  // The same, but row i goes to rank rank_of_row[i]: a rank's `out` has only its own rows, in
  // ascending order. `rank_of_row` [rows] is equal on every rank. Rows of a rank other than 0 total
  // at most max_gather_elements. UNIMPLEMENTED unless ranks communicate through host memory.
  virtual absl::Status GatherRows(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                                  absl::Span<const int> rank_of_row, MatrixView out);

  // Copies rank 0's `values`, on its device, to every rank; 2 * count is bounded like a sum. This
  // default is for ranks in host memory: a sum of 16-bit halves with zeroes from the other ranks.
  virtual absl::Status Broadcast(int32_t* values, int64_t count);
};

// How tensors travel between ranks: through shared host memory; from devices, staged through it
// (staged/); or between devices, by NCCL (nccl/).
enum class Transport { kShared, kStaged, kNccl };

// Maximum sizes that a communicator must support; determines its share of the ledger.
struct CommLimits {
  int64_t max_sum_elements = 0;  // rows x cols of the largest AllReduceSum
  // rows x the largest rank's cols of the largest GatherCols or GatherRows; for GatherRows also the
  // rows of a rank other than 0 x all columns
  int64_t max_gather_elements = 0;
  Transport transport = Transport::kShared;
  // kBF16: NCCL's sums, and what hosts send one another for sums, are rounded to bf16. Then bits
  // depend on the number of ranks and on their hosts, but are still equal on all ranks and in every
  // run. Sums in memory that ranks share, and one-shot sums, remain f32.
  DType sum_dtype = DType::kF32;
};

// Device memory per rank for these limits in a group of `size` ranks. kShared: its slots, its
// private result and its share of the shared one; kStaged: one partial sum, reduced in place;
// kNccl: a partial sum (also one in bf16 if sums are), all ranks' parts, and OneShotLayout. Equal
// on every rank and host.
int64_t CommunicationBytes(const CommLimits& limits, int size);

}  // namespace bulkhead
