// ModelCapacity: how much memory a model needs on how many ranks, and what fits. Shared by `plan`
// and `serve`, so that the plan is exact. Not for several threads at once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "launcher/flags/options.h"
#include "memory/capacity.h"
#include "runtime/model/footprint.h"
#include "runtime/model/weights.h"
#include "shard/model_config.h"
#include "shard/shard_plan.h"

namespace bulkhead {

enum class DeviceKind { kCpu, kGpu };

// The transport between the GPUs of a group of `size`: NCCL unless flags say otherwise.
Transport GpuTransport(CommOption comm, int size);

// A model's shape, with ModelSource's formats; `config` outlives this.
struct ModelShape {
  const ModelConfig& config;
  ModelLimits formats;
};

// The limits of a draft model or an MTP layer that runs with a model with `limits`.
ModelLimits DraftLimitsOf(const ModelShape& draft, const ModelLimits& limits);
// Splits into equal parts. INVALID_ARGUMENT if that is not possible.
absl::StatusOr<ShardPlan> SplitDraft(const ModelShape& draft, int size);

class ModelCapacity {
 public:
  // `config`, `options` and `sizes` (of the ranks' backend) outlive this. Of `formats`, weights,
  // activation, kv_format, block_tokens are used and, for a group of the size it was found for,
  // transport. `draft`: the draft model.
  ModelCapacity(const ModelConfig& config, const ModelLimits& formats, const EngineOptions& options,
                const BackendSizes& sizes, DeviceKind kind = DeviceKind::kCpu,
                std::optional<ModelShape> draft = std::nullopt);

  // For a group of budgets.size() ranks. INVALID_ARGUMENT if the model cannot be split that way.
  absl::StatusOr<Capacity> Plan(absl::Span<const DeviceBudget> budgets) const;
  // Plan, but faster: with --tp-shares auto required_bytes are for the current shares.
  absl::StatusOr<Capacity> Fit(absl::Span<const DeviceBudget> budgets) const;
  // Plan with these limits instead of the given ones.
  absl::StatusOr<Capacity> PlanAt(absl::Span<const DeviceBudget> budgets,
                                  const GivenLimits& given) const;
  // The split over these ranks: equal, or by --tp-shares. INVALID_ARGUMENT with exit code 2 or 3 if
  // impossible.
  absl::StatusOr<ShardPlan> Split(absl::Span<const DeviceBudget> budgets) const;
  // On how many ranks of a group of `size` each KV head is replicated.
  int KvHeadCopies(int size) const;
  bool caches_latents() const { return config_.has_latents(); }
  const GivenLimits& given() const { return options_.limits; }
  int longest() const { return config_.max_position_embeddings; }

 private:
  std::vector<int64_t> SharesOf(absl::Span<const DeviceBudget> budgets) const;  // empty: equal
  // Weights of the ranks of the last split that was planned, by its shares and size; a table plans
  // one split with hundreds of limits.
  struct Weighed {
    LayerKinds layers;
    std::vector<int64_t> shares = {};
    std::vector<WeightNeeds> weights = {};
  };
  // Weight needs of each rank of the plan, which is split by `shares`.
  const std::vector<WeightNeeds>& WeightsOf(const std::vector<int64_t>& shares,
                                            const ShardPlan& plan, const WeightFormats& held_as,
                                            Weighed& weighed) const;

  const ModelConfig& config_;
  const ModelLimits formats_;
  const EngineOptions& options_;
  const BackendSizes& sizes_;
  const DeviceKind kind_;
  const std::optional<ModelShape> draft_;
  mutable Weighed weighed_;
  mutable std::optional<Weighed> weighed_draft_;
};

}  // namespace bulkhead
