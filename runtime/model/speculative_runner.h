// SpeculativeRunner: one rank's model and its draft model, each running the steps that are its own.
// They share backend and communicator; weights, tables, keys and values are apart.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/engine/step_runner.h"
#include "runtime/model/model_runner.h"

namespace bulkhead {

class SpeculativeRunner final : public StepRunner {
 public:
  // Both compute in host memory, one step at a time, and outlive this. A block of the draft model's
  // has the id of the model's block of KV group 0 with the same tokens.
  SpeculativeRunner(ModelRunner& model, ModelRunner& draft) : model_(model), draft_(draft) {}

  absl::Status Submit(Step step) override;
  absl::StatusOr<StepResult> Collect() override { return running_->Collect(); }

 private:
  ModelRunner& model_;
  ModelRunner& draft_;
  ModelRunner* running_ = nullptr;  // that has the step in flight
};

}  // namespace bulkhead
