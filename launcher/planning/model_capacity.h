// ModelCapacity: how much memory a model needs on how many ranks, and what fits. `plan` and `serve`
// ask the same object, so the plan is the run.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "launcher/flags/options.h"
#include "memory/capacity.h"
#include "runtime/model/footprint.h"
#include "shard/model_config.h"
#include "shard/shard_plan.h"

namespace bulkhead {

enum class DeviceKind { kCpu, kGpu };

// How the GPUs of a group of `size` sum, as far as the flags say it: NCCL unless they say
// otherwise.
Transport GpuTransport(CommOption comm, int size);

class ModelCapacity {
 public:
  // `config`, `options` and `sizes` (of the ranks' backend) outlive this. `formats`: weights,
  // activation, kv_format, block_tokens and, for a group of as many ranks as it was found for,
  // transport count.
  ModelCapacity(const ModelConfig& config, const ModelLimits& formats, const EngineOptions& options,
                const BackendSizes& sizes, DeviceKind kind = DeviceKind::kCpu);

  // For a group of budgets.size() ranks. INVALID_ARGUMENT when the model cannot be split so.
  absl::StatusOr<Capacity> Plan(absl::Span<const DeviceBudget> budgets) const;
  // The same in less time: under --tp-shares auto required_bytes are for the shares as they are.
  absl::StatusOr<Capacity> Fit(absl::Span<const DeviceBudget> budgets) const;
  // The same with these limits in place of the given ones.
  absl::StatusOr<Capacity> PlanAt(absl::Span<const DeviceBudget> budgets, int max_num_seqs,
                                  int max_model_len) const;
  // The split over these ranks: equal, or by --tp-shares. INVALID_ARGUMENT with exit code 2 or 3
  // when it is not possible.
  absl::StatusOr<ShardPlan> Split(absl::Span<const DeviceBudget> budgets) const;
  // On how many ranks of a group of `size` a KV head is held.
  int KvHeadCopies(int size) const;
  int longest() const { return config_.max_position_embeddings; }

 private:
  absl::StatusOr<Capacity> PlanWith(absl::Span<const DeviceBudget> budgets,
                                    std::optional<int> max_num_seqs,
                                    std::optional<int> max_model_len,
                                    std::optional<int> max_num_batched_tokens) const;

  const ModelConfig& config_;
  const ModelLimits formats_;
  const EngineOptions& options_;
  const BackendSizes& sizes_;
  const DeviceKind kind_;
};

}  // namespace bulkhead
