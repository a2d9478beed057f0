#include "tests/support/loaded_runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "comm/staged/staged_communicator.h"
#include "runtime/model/family.h"
#include "shard/weight_loader.h"
#include "tests/support/or_die.h"

namespace bulkhead {
namespace {

RigDevice HostRig() {
  RigDevice host;
  host.device = NewHostDevice(0);
  host.backend = OrDie(NewCpuBackend(*host.device, {.may_spin = false}));
  return host;
}

}  // namespace

ModelConfig LoadedRunner::ReadConfig(const std::string& model_dir) {
  return OrDie(ReadModelConfig(model_dir, UnknownFields::kWarn, AllFamilySpecs())).model;
}

ModelLimits LoadedRunner::Limits(const ModelConfig& config) {
  ModelLimits limits;
  limits.max_num_seqs = 4;
  limits.max_model_len = config.max_position_embeddings;
  limits.max_num_batched_tokens = 128;
  limits.block_tokens = 16;
  limits.num_kv_blocks = 64;
  limits.weights = WeightFormats::StoredBy(config, config.dtype.value());
  return limits;
}

LoadedRunner::LoadedRunner(const std::string& model_dir, const ShardPlan& plan,
                           const ModelLimits& limits, Group& group, std::optional<Draft> draft,
                           const std::function<RigDevice()>& make_device)
    : plan_(plan),
      draft_(std::move(draft)),
      rig_(make_device ? make_device() : HostRig()),
      ledger_(*rig_.device) {
  Backend& backend = *rig_.backend;
  const int rank = group.exchange().topology().rank;
  ModelLimits first = limits;
  if (draft_.has_value() && draft_->blocks_at_first > 0) {
    first.num_kv_blocks = draft_->blocks_at_first;
  }
  const int64_t blocks = first.num_kv_blocks;
  needs_ = FootprintOf(plan_, rank, limits, backend);
  CommLimits comm_limits = CommLimitsOf(plan_, limits);
  RankNeeds all = needs_;
  RankNeeds of_draft;
  if (draft_.has_value()) {
    of_draft = FootprintOf(draft_->plan, rank, draft_->limits, backend);
    comm_limits = Larger(comm_limits, CommLimitsOf(draft_->plan, draft_->limits));
    all = WithDraftModel(needs_, of_draft, comm_limits, rank, plan_.size());
  }
  ClaimArenas(all, blocks, ledger_);
  comm_ = OrDie(limits.transport == Transport::kStaged
                    ? ConnectStaged(group, comm_limits, *rig_.device, ledger_)
                    : group.Connect(comm_limits, ledger_));
  ArenasOfBoth arenas;
  if (draft_.has_value()) {
    arenas = OrDie(TakeArenas(needs_, of_draft, blocks, ledger_));
  } else {
    arenas.model = OrDie(TakeArenas(needs_, blocks, ledger_));
  }
  runner_ =
      std::make_unique<ModelRunner>(plan_, rank, first, std::move(arenas.model), backend, *comm_);
  Load(model_dir, plan_, rank, *runner_);
  if (draft_.has_value()) {
    ModelLimits draft_first = draft_->limits;
    draft_first.num_kv_blocks = blocks;
    draft_runner_ = std::make_unique<ModelRunner>(draft_->plan, rank, draft_first,
                                                  std::move(arenas.draft), backend, *comm_);
    Load(draft_->model_dir, draft_->plan, rank, *draft_runner_);
    both_ = std::make_unique<SpeculativeRunner>(*runner_, *draft_runner_);
    if (blocks < limits.num_kv_blocks) {
      BH_CHECK(runner_->GrowKv(limits.num_kv_blocks, ledger_, draft_runner_.get()).ok());
    }
  }
  ledger_.Seal();  // dies unless planned == taken
}

void LoadedRunner::Load(const std::string& model_dir, const ShardPlan& plan, int rank,
                        ModelRunner& runner) {
  LoadProgress progress;
  const absl::Status loaded =
      LoadWeights(*OrDie(Checkpoint::Open(model_dir)), plan.rank(rank), runner.weights(),
                  *rig_.backend, 1, &progress, [] { return false; });
  BH_CHECK(loaded.ok() && progress.done_bytes == progress.total_bytes);
  BH_CHECK(runner.WarmUpProducts().ok() && runner.WarmUpDecodes().ok());
}

std::vector<float> LoadedRunner::Embeddings(absl::Span<const int32_t> ids) {
  const int64_t width = plan_.config().hidden_size;
  std::vector<float> rows(ids.size() * width);
  rig_.backend->Embed(ids.data(), runner_->weights().model[kEmbedding].parts[0], 0,
                      MatrixView(reinterpret_cast<std::byte*>(rows.data()), DType::kF32,
                                 static_cast<int64_t>(ids.size()), width));
  return rows;
}

BlockId DefaultBlock(const ModelLimits& limits, int slot, int index) {
  return static_cast<BlockId>(1 + slot * (limits.num_kv_blocks / limits.max_num_seqs) + index);
}

Step MakeStep(const ModelLimits& limits, uint64_t seq, const std::vector<StepRow>& rows) {
  Step step;
  step.plan.set_seq(seq);
  for (int i = 0; i < static_cast<int>(rows.size()); ++i) {
    const StepRow& row = rows[i];
    const int end = row.start + static_cast<int>(row.tokens.size());
    step.plan.add_slot(row.slot);
    step.plan.add_num_tokens(static_cast<int>(row.tokens.size()));
    step.plan.add_start_position(row.start);
    step.plan.add_num_logits(row.num_logits);
    step.plan.mutable_token_ids()->Add(row.tokens.begin(), row.tokens.end());
    for (int at = 0; at * limits.block_tokens < end; ++at) {
      step.plan.add_table_slot(row.slot);
      step.plan.add_table_index(at);
      step.plan.add_table_block(row.blocks.empty() ? DefaultBlock(limits, row.slot, at)
                                                   : row.blocks[at]);
    }
    for (int left = row.num_logits; left > 0; --left) {
      SampleRow& sample = step.samples.emplace_back();
      sample.seq_index = i;
      sample.sampling.temperature = 0;
      sample.position = end - left + 1;
    }
  }
  step.plan.set_padded_tokens(step.plan.token_ids_size());
  return step;
}

StepOutput RunHere(ModelRunner& runner, Step step) {
  CollectedLogits sink;
  for (int i = 0; i < step.plan.slot_size(); ++i) {
    if (step.plan.num_logits(i) > 0) step.prompt_logits.push_back({i, &sink});
  }
  const StepResult result = OrDie(RunStep(runner, std::move(step)));
  for (const absl::Status& status : result.prompt_logits) BH_CHECK(status.ok());
  StepOutput output;
  output.logits = std::move(sink.all);
  for (const auto& sample : result.samples) output.ids.push_back(OrDie(sample).id);
  return output;
}

}  // namespace bulkhead
