#include "launcher/planning/model_capacity.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "launcher/planning/least_totals.h"
#include "launcher/planning/step_figures.h"
#include "runtime/engine/drafts.h"
#include "runtime/model/kv_groups.h"
#include "shard/shard_plan.h"
#include "shard/weight_loader.h"

namespace bulkhead {
namespace {

// Starting values of limits that are not given.
constexpr int kCpuMaxNumSeqs = 64;
constexpr int kCpuMaxNumBatchedTokens = 2048;
constexpr int kGpuMaxNumSeqs = 256;
constexpr int kGpuMaxNumBatchedTokens = 8192;

}  // namespace

Transport GpuTransport(CommOption comm, int size) {
  if (size == 1) return Transport::kShared;
  return comm == CommOption::kStaged ? Transport::kStaged : Transport::kNccl;
}

ModelLimits DraftLimitsOf(const ModelShape& draft, const ModelLimits& limits) {
  ModelLimits own = draft.formats;
  own.Limits::operator=(limits);
  own.transport = limits.transport;
  own.kv_groups.clear();  // all of its layers are in blocks of group 0
  own.kv_group_of_layer.clear();
  own.max_model_len = std::min(limits.max_model_len, draft.config.max_position_embeddings);
  // An MTP layer has a step after each of the model's.
  if (draft.config.mtp_layer == 0) own.max_num_batched_tokens = DraftStepTokens(limits);
  return own;
}

absl::StatusOr<ShardPlan> SplitDraft(const ModelShape& draft, int size) {
  absl::StatusOr<ShardPlan> plan =
      ShardPlan::Create(draft.config, size, std::max(1, draft.formats.weights.group_size));
  if (plan.ok()) return plan;
  const absl::Status& why = plan.status();
  return WithExitCode(absl::Status(why.code(), absl::StrCat("the draft model: ", why.message())),
                      ExitCodeOf(why));
}

ModelCapacity::ModelCapacity(const ModelConfig& config, const ModelLimits& formats,
                             const EngineOptions& options, const BackendSizes& sizes,
                             DeviceKind kind, std::optional<ModelShape> draft)
    : config_(config),
      formats_(formats),
      options_(options),
      sizes_(sizes),
      kind_(kind),
      draft_(std::move(draft)),
      weighed_{LayerKinds(config)} {
  if (draft_.has_value()) weighed_draft_ = Weighed{LayerKinds(draft_->config)};
}

absl::StatusOr<Capacity> ModelCapacity::Plan(absl::Span<const DeviceBudget> budgets) const {
  absl::StatusOr<Capacity> plan = Fit(budgets);
  if (!plan.ok() || !options_.tp_shares_auto || budgets.size() == 1) return plan;
  const GivenLimits fitted(plan->limits);
  SetLeastTotals(*plan,
                 [&](absl::Span<const DeviceBudget> other) { return PlanAt(other, fitted); });
  return plan;
}

absl::StatusOr<Capacity> ModelCapacity::Fit(absl::Span<const DeviceBudget> budgets) const {
  return PlanAt(budgets, options_.limits);
}

std::vector<int64_t> ModelCapacity::SharesOf(absl::Span<const DeviceBudget> budgets) const {
  std::vector<int64_t> shares = options_.tp_shares;
  if (options_.tp_shares_auto) {
    for (const DeviceBudget& budget : budgets) {
      shares.push_back(std::max<int64_t>(1, budget.free_bytes() - budget.reserve_bytes));
    }
  }
  return shares;
}

const std::vector<WeightNeeds>& ModelCapacity::WeightsOf(const std::vector<int64_t>& shares,
                                                         const ShardPlan& plan,
                                                         const WeightFormats& held_as,
                                                         Weighed& weighed) const {
  std::vector<WeightNeeds>& weights = weighed.weights;
  if (static_cast<int>(weights.size()) == plan.size() && weighed.shares == shares) return weights;
  weighed.shares = shares;
  weights.clear();
  for (int rank = 0; rank < plan.size(); ++rank) {
    weights.push_back(WeightNeedsOf(plan.rank(rank), held_as, sizes_, weighed.layers));
  }
  return weights;
}

absl::StatusOr<ShardPlan> ModelCapacity::Split(absl::Span<const DeviceBudget> budgets) const {
  const int size = static_cast<int>(budgets.size());
  const std::vector<int64_t> shares = SharesOf(budgets);
  const int group_size = std::max(1, formats_.weights.group_size);
  if (shares.empty()) return ShardPlan::Create(config_, size, group_size);
  if (static_cast<int>(shares.size()) == size) {
    return ShardPlan::CreateWithShares(config_, shares, group_size);
  }
  return WithExitCode(
      absl::InvalidArgumentError(absl::StrCat("--tp-shares: the list has ", shares.size(),
                                              " shares and the group ", size, " ranks")),
      ExitCode::kUsage);
}

int ModelCapacity::KvHeadCopies(int size) const {
  return std::max(1, size / config_.num_key_value_heads);
}

absl::StatusOr<Capacity> ModelCapacity::PlanAt(absl::Span<const DeviceBudget> budgets,
                                               const GivenLimits& given) const {
  BH_ASSIGN_OR_RETURN(const ShardPlan plan, Split(budgets));
  ModelLimits limits = formats_;
  const bool gpu = kind_ == DeviceKind::kGpu;
  const bool one = budgets.size() == 1;
  if (gpu && one != (limits.transport == Transport::kShared)) {
    limits.transport = GpuTransport(options_.comm, static_cast<int>(budgets.size()));
  }
  CapacityRequest request;
  request.given = given;
  request.start = {
      .max_num_seqs = gpu ? kGpuMaxNumSeqs : kCpuMaxNumSeqs,
      .max_model_len = config_.max_position_embeddings,
      .max_num_batched_tokens = gpu ? kGpuMaxNumBatchedTokens : kCpuMaxNumBatchedTokens,
      .block_tokens = formats_.block_tokens,
      .depth = gpu ? 2 : 1};
  request.group_layers = [this](Limits& fitted) { SetKvGroups(config_, fitted); };
  request.cap_at_max_num_seqs = !gpu;
  request.rule = options_.kv_rule;
  const std::vector<WeightNeeds>& weights =
      WeightsOf(SharesOf(budgets), plan, formats_.weights, weighed_);
  std::optional<ShardPlan> draft_plan;
  if (draft_.has_value()) {
    BH_ASSIGN_OR_RETURN(draft_plan, SplitDraft(*draft_, static_cast<int>(budgets.size())));
    WeightsOf({}, *draft_plan, draft_->formats.weights, *weighed_draft_);
  }
  return PlanCapacity(budgets, request, [&](int rank, const Limits& fitted) {
    limits.Limits::operator=(fitted);
    RankNeeds needs = FootprintOf(plan, rank, limits, sizes_, weights[rank]);
    if (gpu) needs.host_bytes += StepFiguresBytes(plan.size());
    const auto threads =
        static_cast<int>(budgets[rank].transient_bytes / Checkpoint::kStagingBytes);
    needs.open_weight_bytes = weights[rank].OpenBytes(threads);
    if (!draft_plan.has_value()) return needs;
    const WeightNeeds& of_draft = weighed_draft_->weights[rank];
    needs.open_weight_bytes = std::max(needs.open_weight_bytes, of_draft.OpenBytes(threads));
    const ModelLimits own = DraftLimitsOf(*draft_, limits);
    return WithDraftModel(std::move(needs), FootprintOf(*draft_plan, rank, own, sizes_, of_draft),
                          Larger(CommLimitsOf(plan, limits), CommLimitsOf(*draft_plan, own)), rank,
                          plan.size());
  });
}

}  // namespace bulkhead
