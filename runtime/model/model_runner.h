// ModelRunner: one rank's model in its sealed arenas, running step plans. Built once at start;
// after that nothing is allocated on the device.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "kernels/backend.h"
#include "memory/ledger.h"
#include "runtime/engine/sampler.h"
#include "runtime/engine/step_runner.h"
#include "runtime/model/decoder.h"
#include "runtime/model/footprint.h"

namespace bulkhead {

// The memory behind the layouts of footprint.h; every buffer came from the ledger.
struct ModelArenas {
  Buffer weights;
  Buffer activations;
  Buffer block_tables;
  Buffer logits;
  Buffer workspace;  // rope table, scratch
  Buffer kv;         // block 0 and the usable blocks
};

// Claims every arena of this rank.
void ClaimArenas(const RankNeeds& needs, int64_t num_kv_blocks, MemoryLedger& ledger);
// Takes what ClaimArenas claimed but for communication, which the group takes. RESOURCE_EXHAUSTED
// names the term.
absl::StatusOr<ModelArenas> TakeArenas(const RankNeeds& needs, int64_t num_kv_blocks,
                                       MemoryLedger& ledger);

class ModelRunner final : public StepRunner {
 public:
  // `plan`, `backend` and `comm` outlive the runner. Fills the rope table; weights are loaded into
  // weights() afterwards.
  ModelRunner(const ShardPlan& plan, int rank, const ModelLimits& limits, ModelArenas arenas,
              Backend& backend, Communicator& comm);

  const ModelWeights& weights() const { return weights_; }
  absl::StatusOr<StepResult> Run(const Step& step) override;

 private:
  absl::Status Check(const internal::StepPlan& plan) const;
  // Applies the plan's table changes and lays the indices of the step into the step arrays.
  StepIndex Prepare(const internal::StepPlan& plan);
  absl::Status RunLogits(const Step& step, ConstMatrixView hidden, StepResult& result);
  // Hands the rows of one tile to whoever wants them: prompt logits sinks, then the sampler.
  void TakeTile(const Step& step, int64_t first_row, ConstMatrixView logits, StepResult& result);

  const ShardPlan& plan_;
  const int rank_;
  const ModelLimits limits_;
  ModelArenas arenas_;
  Backend& backend_;
  Communicator& comm_;
  ModelWeights weights_;
  StepArrays arrays_;
  LogitBuffers logits_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<int64_t> vocab_cols_;      // [size]
  std::vector<int> logit_seq_;           // [logit rows of the step] which sequence
  std::optional<Sampler> sampler_;       // rank 0
  std::vector<int64_t> logit_position_;  // [logit rows of the step] absolute position
};

}  // namespace bulkhead
