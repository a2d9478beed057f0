// SpeculativeRunner: one rank's model and its draft model, each running the steps that are its own.
// They share backend and communicator; weights, tables, keys and values are apart.
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
  // Both compute on one backend, one step at a time, and outlive this. A block of the draft model's
  // has the id of the model's block of KV group 0 with the same tokens. An MTP layer reads the
  // hidden states of the step before: the model's at its tokens' positions, or its own before them.
  SpeculativeRunner(ModelRunner& model, ModelRunner& draft) : model_(model), draft_(draft) {}

  // INTERNAL with exit code 70 where an MTP layer's step needs what the step before did not leave.
  absl::Status Submit(Step step) override;
  absl::StatusOr<StepResult> Collect() override { return running_->Collect(); }

 private:
  absl::Status GiveHidden(const internal::StepPlan& plan);
  void RecordRows(const internal::StepPlan& plan);

  ModelRunner& model_;
  ModelRunner& draft_;
  ModelRunner* running_ = &model_;  // that has the step in flight, or had the last one
  // Whose workspace the backend has; null before the first step. To set it copies to the device.
  const ModelRunner* workspace_of_ = nullptr;
  // Of a slot in that step: the positions of its rows, and the first of these among all.
  struct Rows {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t first = 0;
  };
  std::vector<Rows> rows_;            // [slots so far]
  std::vector<int32_t> hidden_rows_;  // scratch: of each token of a step
};

}  // namespace bulkhead
