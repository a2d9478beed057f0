#include "launcher/group/step_clock.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "memory/status.h"

namespace bulkhead {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

absl::StatusOr<ConstMatrixView> TimedCommunicator::AllReduceSum() {
  const Clock::time_point begin = Clock::now();
  absl::StatusOr<ConstMatrixView> sum = comm_->AllReduceSum();
  seconds_ += SecondsSince(begin);
  return sum;
}

absl::Status TimedCommunicator::GatherCols(ConstMatrixView part,
                                           absl::Span<const int64_t> cols_of_rank, MatrixView out) {
  const Clock::time_point begin = Clock::now();
  absl::Status status = comm_->GatherCols(part, cols_of_rank, out);
  seconds_ += SecondsSince(begin);
  return status;
}

absl::Status TimedCommunicator::Broadcast(int32_t* values, int64_t count) {
  const Clock::time_point begin = Clock::now();
  absl::Status status = comm_->Broadcast(values, count);
  seconds_ += SecondsSince(begin);
  return status;
}

absl::Status TimedRunner::Submit(Step step) {
  const auto& counts = step.plan.num_tokens();
  Begun begun;
  begun.seq = step.plan.seq();
  begun.decodes =
      std::all_of(counts.begin(), counts.end(), [](int32_t count) { return count == 1; });
  begun.at = Clock::now();
  const double comm_before = comm_.seconds();
  absl::Status status = runner_.Submit(std::move(step));
  begun.comm_s = comm_.seconds() - comm_before;
  begun_.push_back(begun);
  return status;
}

absl::StatusOr<StepResult> TimedRunner::Collect() {
  const double comm_before = comm_.seconds();
  absl::StatusOr<StepResult> result = runner_.Collect();
  const Begun begun = begun_.front();
  begun_.pop_front();
  StepTotals& totals = begun.decodes ? figures_.decode : figures_.prefill;
  totals.Add(SecondsSince(std::max(begun.at, last_end_)),
             begun.comm_s + comm_.seconds() - comm_before);
  last_end_ = Clock::now();
  if (result.ok() && shares_ && begun.seq % kShareEverySteps == 0) BH_RETURN_IF_ERROR(Share());
  return result;
}

absl::Status TimedRunner::Share() {
  const int size = comm_.size();
  const MatrixView term = comm_.Term(1, int64_t{kShared} * size);
  std::fill_n(term.F32(), kShared * size, 0.0F);
  float* mine = term.F32() + kShared * comm_.rank();
  mine[0] = static_cast<float>(figures_.decode.step_s - told_.decode.step_s);
  mine[1] = static_cast<float>(figures_.decode.comm_s - told_.decode.comm_s);
  mine[2] = static_cast<float>(figures_.prefill.step_s - told_.prefill.step_s);
  mine[3] = static_cast<float>(figures_.prefill.comm_s - told_.prefill.comm_s);
  BH_ASSIGN_OR_RETURN(const ConstMatrixView all, comm_.AllReduceSum());
  std::vector<RankFigures> window(size);
  for (int rank = 0; rank < size && board_ != nullptr; ++rank) {
    const float* one = all.F32() + kShared * rank;
    window[rank].decode = {figures_.decode.steps - told_.decode.steps, one[0], one[1], 0};
    window[rank].prefill = {figures_.prefill.steps - told_.prefill.steps, one[2], one[3], 0};
  }
  if (board_ != nullptr) board_->Add(window);
  told_ = figures_;
  return absl::OkStatus();
}

std::vector<RankFigures> StepBoard::Get() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ranks_;
}

void StepBoard::Add(absl::Span<const RankFigures> window) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (StepTotals RankFigures::*kind : {&RankFigures::decode, &RankFigures::prefill}) {
      const StepTotals& more = window[rank].*kind;
      StepTotals& sum = ranks_[rank].*kind;
      sum.steps += more.steps;
      sum.step_s += more.step_s;
      sum.comm_s += more.comm_s;
    }
  }
}

}  // namespace bulkhead
