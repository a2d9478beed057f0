#include "launcher/group/step_clock.h"

#include <algorithm>
#include <chrono>

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

absl::StatusOr<StepResult> TimedRunner::Run(const Step& step) {
  const double comm_before = comm_.seconds();
  const Clock::time_point begin = Clock::now();
  absl::StatusOr<StepResult> result = runner_.Run(step);
  const auto& counts = step.plan.num_tokens();
  const bool decodes =
      std::all_of(counts.begin(), counts.end(), [](int32_t count) { return count == 1; });
  StepTotals& totals = decodes ? figures_.decode : figures_.prefill;
  totals.Add(SecondsSince(begin), comm_.seconds() - comm_before);
  return result;
}

}  // namespace bulkhead
