// Where a rank's steps spend their time: between computing and the other ranks. Two clock readings
// for each sum, gather and step; the rank's main thread alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/communicator.h"
#include "launcher/bench/rank_figures.h"
#include "memory/device.h"
#include "memory/device_watch.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// A communicator that counts the time spent in it.
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
  absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          MatrixView out) override;
  absl::Status Broadcast(int32_t* values, int64_t count) override;

 private:
  const std::unique_ptr<Communicator> comm_;
  double seconds_ = 0;
};

// What rank 0 knows of every rank, up to the last time that the ranks told each other. Thread-safe.
class RankStepStats {
 public:
  explicit RankStepStats(int ranks) : ranks_(ranks), devices_(ranks) {}
  // Since the start; hosts and loads are empty.
  std::vector<RankFigures> Get() const;
  // One more window of steps, by rank.
  void Add(absl::Span<const RankFigures> window);
  // Of the ranks' GPUs, without failed looks; all 0 where a rank has not told yet, or has none.
  std::vector<DeviceWatchReading> Devices() const;
  void SetDevices(std::vector<DeviceWatchReading> devices);

 private:
  mutable std::mutex mutex_;
  std::vector<RankFigures> ranks_;
  std::vector<DeviceWatchReading> devices_;
};

// A runner that notes of every step how long it took and how long of that in `comm`, which the
// runner uses; a step that was submitted while another one was in flight has its time from that
// one's end on. Behind every kShareEverySteps-th step, by the plans' numbers and so alike on all
// ranks, the ranks tell each other in one more sum what that came to, and what their GPUs have
// free. What is passed in outlives it; `board` is null but on rank 0, and may be null there.
class InstrumentedStepRunner final : public StepRunner {
 public:
  static constexpr uint64_t kShareEverySteps = 32;

  // `max_sum_elements`: of `comm`. Where it is too small for the ranks' figures they keep them.
  // `gpu`: null on a CPU. On a GPU the ranks tell no times, since the host does not see where they
  // are spent. `watch`: of the GPU's memory.
  InstrumentedStepRunner(StepRunner& runner, TimedCommunicator& comm, int64_t max_sum_elements,
                         RankFigures& figures, RankStepStats* board, Device* gpu = nullptr,
                         const DeviceWatch* watch = nullptr)
      : runner_(runner),
        comm_(comm),
        shares_(max_sum_elements >= int64_t{kShared} * comm.size()),
        figures_(figures),
        board_(board),
        gpu_(gpu),
        watch_(watch) {}
  int depth() const override { return runner_.depth(); }
  absl::Status Submit(Step step) override;
  absl::StatusOr<StepResult> Collect() override;

 private:
  static constexpr int kShared = 10;  // numbers of each rank

  struct Begun {
    uint64_t seq = 0;
    bool decodes = false;
    std::chrono::steady_clock::time_point at;
    double comm_s = 0;  // while it was submitted
  };

  absl::Status Share();
  // Adds up numbers_ over the ranks.
  absl::Status Sum();

  StepRunner& runner_;
  TimedCommunicator& comm_;
  const bool shares_;
  RankFigures& figures_;
  RankFigures told_;  // figures_ when they were last shared
  RankStepStats* const board_;
  Device* const gpu_;
  const DeviceWatch* const watch_;
  std::vector<float> numbers_;  // [size, kShared]
  std::deque<Begun> begun_;
  std::chrono::steady_clock::time_point last_end_;
};

}  // namespace bulkhead
