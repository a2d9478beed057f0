// How a rank's step time splits into computing and waiting for other ranks. Two clock readings per
// collective and step; the rank's main thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "bulkhead/internal/startup.pb.h"
#include "comm/communicator.h"
#include "launcher/planning/step_figures.h"
#include "memory/cuda_driver.h"
#include "memory/device.h"
#include "memory/device_watch.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

using internal::RankFigures;
using internal::StepTotals;

// A communicator that measures the time spent in it.
class TimedCommunicator final : public Communicator {
 public:
  explicit TimedCommunicator(std::unique_ptr<Communicator> comm) : comm_(std::move(comm)) {}
  double seconds() const { return seconds_; }

  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  MatrixView PartialSum(int64_t rows, int64_t cols) override {
    return comm_->PartialSum(rows, cols);
  }
  absl::StatusOr<ConstMatrixView> AllReduceSum() override;
  absl::StatusOr<ConstMatrixView> AllReduceSumF32() override;
  bool NormsSum(int64_t rows, int64_t cols) const override { return comm_->NormsSum(rows, cols); }
  void AllReduceSumNorm(const ResidualNorm& norm) override;
  absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          MatrixView out) override;
  absl::Status GatherRows(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          absl::Span<const int> rank_of_row, MatrixView out) override;
  absl::Status Broadcast(int32_t* values, int64_t count) override;

 private:
  const std::unique_ptr<Communicator> comm_;
  double seconds_ = 0;
};

// Rank 0's copy of every rank's figures, as of the last time they were shared. Thread-safe.
class RankStepStats {
 public:
  explicit RankStepStats(int ranks) : ranks_(ranks), devices_(ranks) {}
  // Totals since the start; hosts and loads are empty.
  std::vector<RankFigures> Get() const;
  // Adds a window of steps, by rank.
  void Add(absl::Span<const RankFigures> window);
  // The ranks' GPUs, without failed looks; all 0 for a rank that has not reported yet, or has none.
  std::vector<DeviceWatchReading> Devices() const;
  void SetDevices(std::vector<DeviceWatchReading> devices);

 private:
  mutable absl::Mutex mutex_;
  std::vector<RankFigures> ranks_ ABSL_GUARDED_BY(mutex_);
  std::vector<DeviceWatchReading> devices_ ABSL_GUARDED_BY(mutex_);
};

// A runner that measures the time of every step and the part spent in `comm`, which the runner
// uses; a step submitted while another one was in flight is timed from that one's end. After every
// kShareEverySteps-th step, by plan number and so equally on all ranks, one additional sum shares
// the totals and the free memory of the GPUs. All arguments outlive it; `board` is null except on
// rank 0, and may be null there.
class InstrumentedStepRunner final : public StepRunner {
 public:
  static constexpr uint64_t kShareEverySteps = 32;

  // `max_sum_elements`: `comm`'s limit. If it is too small for the ranks' figures they are not
  // shared. `gpu`: null on a CPU. On a GPU no times are shared, since the host does not see where
  // they are spent, and nothing waits for the sum, which is read when a later step ends. `pinned`:
  // StepFiguresBytes of host memory, with a GPU. `watch`: watches the GPU's memory.
  InstrumentedStepRunner(StepRunner& runner, TimedCommunicator& comm, int64_t max_sum_elements,
                         RankFigures& figures, RankStepStats* board, Device* gpu = nullptr,
                         std::byte* pinned = nullptr, const DeviceWatch* watch = nullptr)
      : runner_(runner),
        comm_(comm),
        shares_(max_sum_elements >= int64_t{kStepFigures} * comm.size()),
        figures_(figures),
        board_(board),
        gpu_(gpu),
        pinned_(pinned),
        watch_(watch),
        summed_(gpu == nullptr ? CudaEvent() : gpu->cuda_driver()->NewEvent()) {}
  int depth() const override { return runner_.depth(); }
  absl::Status Submit(Step step) override;
  absl::StatusOr<StepResult> Collect() override;

 private:
  struct Begun {
    uint64_t seq = 0;
    bool decodes = false;
    std::chrono::steady_clock::time_point at;
    double comm_s = 0;  // while it was submitted
  };

  absl::Status Share();
  // Enqueues the sum of numbers_ over the ranks.
  absl::Status SumOnGpu();
  // Waits for the sum if it has not arrived.
  absl::Status TakeSum();
  void Tell(const float* sums);

  StepRunner& runner_;
  TimedCommunicator& comm_;
  const bool shares_;
  RankFigures& figures_;
  RankFigures last_shared_;  // figures_ when last shared
  RankStepStats* const board_;
  Device* const gpu_;
  std::byte* const pinned_;
  const DeviceWatch* const watch_;
  std::vector<float> numbers_;  // [size, kStepFigures]
  const CudaEvent summed_;      // on a GPU: after the sum's copy to pinned_
  bool sum_comes_ = false;      // a sum is pending or not yet read
  std::deque<Begun> begun_;
  std::chrono::steady_clock::time_point last_end_;
};

}  // namespace bulkhead
