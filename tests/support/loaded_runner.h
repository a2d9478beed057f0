// One rank's model of a checkpoint, loaded and sealed, for tests that write step plans by hand.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "comm/group.h"
#include "runtime/model/model_runner.h"
#include "runtime/model/speculative_runner.h"
#include "tests/support/model_rig.h"

namespace bulkhead {

// Collects rows of prompt logits in order of arrival.
class CollectedLogits final : public LogitsSink {
 public:
  absl::Status OnRows(int64_t, int64_t rows, int64_t vocab_size, const float* logits) override {
    all.insert(all.end(), logits, logits + rows * vocab_size);
    return absl::OkStatus();
  }
  std::vector<float> all;
};

// Aborts on errors: reporting errors is the test's task.
class LoadedRunner {
 public:
  // Limits of a whole f32 model: 4 sequences, 128 tokens per step, blocks of 16 tokens.
  static ModelLimits Limits(const ModelConfig& config);
  static ModelConfig ReadConfig(const std::string& model_dir);

  // A draft model on the same backend and communicator, with the same block numbers.
  struct Draft {
    std::string model_dir;
    ShardPlan plan;
    ModelLimits limits;
    int64_t blocks_at_first = 0;  // > 0: initial size of both pools, which grow after loading
  };
  // `make_device`: null: the host. `limits` say whether sums are staged.
  LoadedRunner(const std::string& model_dir, const ShardPlan& plan, const ModelLimits& limits,
               Group& group, std::optional<Draft> draft = std::nullopt,
               const std::function<RigDevice()>& make_device = nullptr);

  ModelRunner& operator*() { return *runner_; }
  ModelRunner* operator->() { return runner_.get(); }
  // Runs steps of the model and the draft model.
  StepRunner& steps() { return both_ != nullptr ? static_cast<StepRunner&>(*both_) : *runner_; }
  const RankNeeds& needs() const { return needs_; }
  Backend& backend() { return *rig_.backend; }
  // [ids, D]: the embedding's rows. Requires a rank that has them all.
  std::vector<float> Embeddings(absl::Span<const int32_t> ids);

 private:
  void Load(const std::string& model_dir, const ShardPlan& plan, int rank, ModelRunner& runner);

  const ShardPlan plan_;
  const std::optional<Draft> draft_;
  const RigDevice rig_;
  MemoryLedger ledger_;
  RankNeeds needs_;
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<ModelRunner> draft_runner_;
  std::unique_ptr<SpeculativeRunner> both_;
};

// A sequence's tokens in a step: they begin at `start`; the last `num_logits` get logits, from each
// of which a token is sampled greedily.
struct StepRow {
  int slot = 0;
  int start = 0;
  std::vector<int32_t> tokens;
  int num_logits = 0;
  std::vector<BlockId> blocks = {};  // from position 0 on; empty: DefaultBlock's
};
// Different for every slot.
BlockId DefaultBlock(const ModelLimits& limits, int slot, int index);
// `seq`: index in the plan.
Step MakeStep(const ModelLimits& limits, uint64_t seq, const std::vector<StepRow>& rows);

struct StepOutput {
  std::vector<float> logits;  // [rows with logits, V]
  std::vector<int32_t> ids;   // per row, sampled greedily
};
// Runs the step in `runner`, which has the last layer, in a group of one.
StepOutput RunHere(ModelRunner& runner, Step step);

}  // namespace bulkhead
