#include "runtime/model/speculative_runner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {

using internal::StepPlan;

absl::Status SpeculativeRunner::Submit(Step step) {
  StepPlan tables;
  *tables.mutable_table_slot() = step.plan.table_slot();
  *tables.mutable_table_index() = step.plan.table_index();
  *tables.mutable_table_block() = step.plan.table_block();
  *tables.mutable_table_group() = step.plan.table_group();
  ModelRunner& runner = step.plan.draft() ? draft_ : model_;
  ModelRunner& other = step.plan.draft() ? model_ : draft_;
  if (draft_.is_mtp()) {
    BH_RETURN_IF_ERROR(runner.Check(step.plan));
    if (step.plan.draft()) BH_RETURN_IF_ERROR(GiveHidden(step.plan));
    RecordRows(step.plan);
  }
  running_ = &runner;
  if (std::exchange(workspace_of_, &runner) != &runner) runner.UseWorkspace();
  BH_RETURN_IF_ERROR(running_->Submit(std::move(step)));
  other.ApplyTables(tables);
  return absl::OkStatus();
}

absl::Status SpeculativeRunner::GiveHidden(const StepPlan& plan) {
  const int64_t before = running_ == &draft_ ? 1 : 0;
  hidden_rows_.clear();
  for (int s = 0; s < plan.slot_size(); ++s) {
    const int64_t begin = plan.start_position(s) - before;
    const Rows rows = plan.slot(s) < static_cast<int>(rows_.size()) ? rows_[plan.slot(s)] : Rows();
    if (begin < rows.begin || begin + plan.num_tokens(s) > rows.end) {
      return WithExitCode(
          absl::InternalError(absl::StrCat(
              "step ", plan.seq(), " needs hidden states of slot ", plan.slot(s), " from position ",
              begin, " on, and the step before left those from ", rows.begin, " to ", rows.end)),
          ExitCode::kBug);
    }
    for (int i = 0; i < plan.num_tokens(s); ++i) {
      hidden_rows_.push_back(static_cast<int32_t>(rows.first + begin - rows.begin + i));
    }
  }
  return draft_.SetMtpHidden(*running_, hidden_rows_);
}

void SpeculativeRunner::RecordRows(const StepPlan& plan) {
  rows_.assign(rows_.size(), Rows());
  int64_t first = 0;
  for (int s = 0; s < plan.slot_size(); ++s) {
    const auto slot = static_cast<size_t>(plan.slot(s));
    if (slot >= rows_.size()) rows_.resize(slot + 1);
    const int64_t begin = plan.start_position(s);
    rows_[slot] = {begin, begin + plan.num_tokens(s), first};
    first += plan.num_tokens(s);
  }
}

}  // namespace bulkhead
