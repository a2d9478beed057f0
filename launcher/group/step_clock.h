// Where a rank's steps spend their time: between computing and the other ranks. Two clock readings
// for each sum, gather and step; the rank's main thread alone.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/communicator.h"
#include "launcher/bench/rank_figures.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// A communicator that counts the time spent in it.
class TimedCommunicator final : public Communicator {
 public:
  explicit TimedCommunicator(std::unique_ptr<Communicator> comm) : comm_(std::move(comm)) {}
  double seconds() const { return seconds_; }

  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  MatrixView Term(int64_t rows, int64_t cols) override { return comm_->Term(rows, cols); }
  absl::StatusOr<ConstMatrixView> AllReduceSum() override;
  absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          MatrixView out) override;

 private:
  const std::unique_ptr<Communicator> comm_;
  double seconds_ = 0;
};

// A runner that notes of every step how long it took and how long of that in `comm`, which the
// runner uses. Both outlive it; so does `figures`.
class TimedRunner final : public StepRunner {
 public:
  TimedRunner(StepRunner& runner, const TimedCommunicator& comm, RankFigures& figures)
      : runner_(runner), comm_(comm), figures_(figures) {}
  absl::StatusOr<StepResult> Run(const Step& step) override;

 private:
  StepRunner& runner_;
  const TimedCommunicator& comm_;
  RankFigures& figures_;
};

}  // namespace bulkhead
