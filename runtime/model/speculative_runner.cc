#include "runtime/model/speculative_runner.h"

#include <utility>

#include "base/status.h"

namespace bulkhead {

absl::Status SpeculativeRunner::Submit(Step step) {
  internal::StepPlan tables;
  *tables.mutable_table_slot() = step.plan.table_slot();
  *tables.mutable_table_index() = step.plan.table_index();
  *tables.mutable_table_block() = step.plan.table_block();
  *tables.mutable_table_group() = step.plan.table_group();
  running_ = step.plan.draft() ? &draft_ : &model_;
  ModelRunner& other = step.plan.draft() ? model_ : draft_;
  running_->UseWorkspace();
  BH_RETURN_IF_ERROR(running_->Submit(std::move(step)));
  other.ApplyTables(tables);
  return absl::OkStatus();
}

}  // namespace bulkhead
