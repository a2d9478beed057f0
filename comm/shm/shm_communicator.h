// ShmCommunicator: sums and gathers through memory shared by the ranks of a host. A matrix product
// writes its partial sum directly into the rank's slot; a sum costs one barrier, or two if large.
//
// Tensor memory: per rank two slots, then per rank its share of the result of large sums.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "comm/communicator.h"
#include "comm/shm/region.h"
#include "memory/device.h"

namespace bulkhead {

// The single order in which partial sums of several ranks are added:
// sum[i] = the tree over partial sums[..][i] for i in [begin, end): ranks [0, n) are [0, ceil(n/2))
// plus the rest, recursively, so ((0+1)+2)+(3+4) for five. Bit-identical for any range. `sum` must
// not alias a partial sum. n >= 1. Memory-bound: reads 4 n bytes and writes 4 per element.
void TreeSum(absl::Span<const float* const> partial_sums, int64_t begin, int64_t end, float* sum);

// Up to this size every rank adds all partial sums; above it, each adds its share, followed by a
// second barrier. That barrier takes 0.2 us, re-reading another rank's cache line 13 ns.
inline constexpr int64_t kSmallSumBytes = 1024;

inline constexpr int64_t kPageBytes = 4096;

// The parts of CommunicationBytes. A group of one has a single slot and no results.
struct CommunicationLayout {
  CommunicationLayout(const CommLimits& limits, int size);
  int64_t slot_bytes = 0;           // of each of two; whole pages, for NUMA placement
  int64_t shared_result_bytes = 0;  // this rank's share; whole pages
  int64_t private_result_bytes = 0;

  int64_t MappedBytes() const { return 2 * slot_bytes + shared_result_bytes; }
};

// Start of rank r's share of `elements` among `size` ranks; shares never split a cache line.
int64_t ShareBegin(int64_t elements, int rank, int size);

// Sizes and destinations of a gather.
struct GatherPlan {
  absl::Span<const int64_t> cols_of_rank;
  absl::Span<const int> rank_of_row;  // empty: all to rank 0

  int RankOf(int64_t row) const { return rank_of_row.empty() ? 0 : rank_of_row[row]; }
  int64_t RowsOf(int rank, int64_t rows) const;
  int64_t width() const;
  // Differs for different plans, with rare exceptions.
  int64_t Note(int64_t rows) const;
};

// First step of a gather: checks the sizes and packs `part` into this rank's slot. Rows for this
// rank are not copied, but their space is kept.
void PutPart(ConstMatrixView part, const GatherPlan& plan, int rank, const CommLimits& limits,
             float* slot);

// Reusable barrier for all ranks of a Region.
class ShmBarrier {
 public:
  explicit ShmBarrier(Region& region) : region_(region) {}
  // `note` identifies this rank's operation; a mismatch between ranks is a bug that would otherwise
  // give wrong numbers.
  absl::Status Wait(int64_t note);

 private:
  Region& region_;
  uint32_t passed_ = 0;  // barriers so far, equal on all ranks
};

class ShmCommunicator final : public Communicator {
 public:
  // `tensors`: size x layout.MappedBytes() of shared memory; `result`: layout.private_result_bytes.
  // First-touches this rank's pages of `tensors`, to place them on its NUMA node.
  ShmCommunicator(std::shared_ptr<Region> region, const CommLimits& limits, SharedMemory tensors,
                  Buffer result);
  int rank() const override { return region_->rank(); }
  int size() const override { return region_->size(); }
  MatrixView PartialSum(int64_t rows, int64_t cols) override;
  absl::StatusOr<ConstMatrixView> AllReduceSum() override;
  absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          MatrixView out) override {
    return Gather(part, {cols_of_rank, {}}, out);
  }
  absl::Status GatherRows(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          absl::Span<const int> rank_of_row, MatrixView out) override {
    return Gather(part, {cols_of_rank, rank_of_row}, out);
  }

 private:
  absl::Status Gather(ConstMatrixView part, const GatherPlan& plan, MatrixView out);
  std::byte* slot(int turn, int rank) const {
    return tensors_.get() + (int64_t{turn} * size() + rank) * layout_.slot_bytes;
  }
  float* shared_result() const {
    return reinterpret_cast<float*>(tensors_.get() + 2 * size() * layout_.slot_bytes);
  }

  std::shared_ptr<Region> region_;
  CommLimits limits_;
  CommunicationLayout layout_;
  SharedMemory tensors_;
  Buffer result_;
  std::array<std::vector<const float*>, 2> partial_sums_;  // [turn][rank]
  ShmBarrier barrier_;
  int turn_ = 0;  // of the next operation
  bool has_term_ = false;
  int64_t term_rows_ = 0;
  int64_t term_cols_ = 0;
};

}  // namespace bulkhead
