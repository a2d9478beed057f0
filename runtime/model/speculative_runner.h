// SpeculativeRunner: one rank's model and its draft model, each running its own steps. They share
// backend and communicator, not weights, tables, keys and values.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/engine/step_runner.h"
#include "runtime/model/model_runner.h"

namespace bulkhead {

class SpeculativeRunner final : public StepRunner {
 public:
  // Both compute on one backend, one step at a time, and outlive this. The draft model's KV blocks
  // have the same ids as the model's KV group 0 blocks with the same tokens. An MTP layer reads the
  // previous step's hidden states: the model's at its tokens' positions, or its own before them.
  SpeculativeRunner(ModelRunner& model, ModelRunner& draft) : model_(model), draft_(draft) {}

  // INTERNAL with exit code 70 if an MTP layer's step needs states that the previous step did not
  // leave.
  absl::Status Submit(Step step) override;
  absl::StatusOr<StepResult> Collect() override { return running_->Collect(); }

 private:
  absl::Status GiveHidden(const internal::StepPlan& plan);
  void RecordRows(const internal::StepPlan& plan);

  ModelRunner& model_;
  ModelRunner& draft_;
  ModelRunner* running_ = &model_;  // runs the step in flight, or ran the last one
  // Whose workspace the backend uses; null before the first step. Changing it costs a copy to the
  // device.
  const ModelRunner* workspace_of_ = nullptr;
  // A slot's rows in that step: their positions, and the index of the first among all rows.
  struct Rows {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t first = 0;
  };
  std::vector<Rows> rows_;            // [slots so far]
  std::vector<int32_t> hidden_rows_;  // scratch: per token of a step
};

}  // namespace bulkhead
