// ShardPlan: which part of the model each rank owns, for one config and one group size. Pure
// arithmetic.
//
// Attention splits at KV-group borders while there are any (first those of the larger groups, if
// layers differ), then at head borders (the KV head is then replicated); the MLP splits its inner
// width; the vocabulary splits by rows. For 1, 2, 4 and 8 ranks the split is halving, larger half
// first, three times: 8 leaves, and a rank owns a whole subtree of them (docs/architecture.md,
// Determinism). In other group sizes each rank owns one range, one slice.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "shard/model_config.h"

namespace bulkhead {

// Half-open: [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool operator==(const Range&) const = default;
};

// [0, total) over `parts` parts: the first ceil(parts/2) and the rest share it in proportion,
// halves rounded up, recursively. For a power of two: halving, larger half first.
std::vector<Range> PartitionEvenly(int64_t total, int parts);
// [0, total) in proportion to `shares`, each part at least 1; total >= shares.size().
std::vector<Range> PartitionByShares(int64_t total, absl::Span<const int64_t> shares);

// One rank's part of the model. ShardPlan::Create makes it.
struct RankShard {
  std::shared_ptr<const ModelConfig> model;  // the whole model; never null
  int rank = 0;
  int size = 1;
  Range heads;                      // of H; may be empty, or less than a KV group
  Range kv_heads;                   // of K; the heads that `heads` read; empty if heads is
  std::vector<int32_t> head_to_kv;  // [h] index on this rank
  Range full_kv_heads;              // the same in layers with full_heads
  std::vector<int32_t> full_head_to_kv;
  Range delta_values;                 // value heads of linear attention
  Range delta_keys;                   // the key heads that those read
  std::vector<int32_t> value_to_key;  // [delta_values] index on this rank
  Range mlp;                          // of F
  Range expert_mlp;                   // of every expert's width, and of the shared one
  Range shared_mlp;
  Range vocab;    // of V
  Range experts;  // of E; empty if this rank has none
  Range layers;   // of L; all of them, or a pipeline stage's
  // Borders of its leaves, relative to its first head and to its first columns.
  std::vector<int64_t> head_borders;
  // The same for its KV heads: each belongs to the leaf of its first query head, on one rank only.
  std::vector<int64_t> kv_head_borders;
  std::vector<int64_t> delta_borders;  // of its value heads
  std::vector<int64_t> mlp_borders;
  std::vector<int64_t> expert_mlp_borders;
  std::vector<int64_t> shared_mlp_borders;

  // The first stage has the embedding, the last one the final norm and the head.
  bool first_stage() const { return layers.begin == 0; }
  bool last_stage() const { return layers.end == model->num_hidden_layers; }
};

class ShardPlan {
 public:
  // A rank without heads is legal; one without MLP columns or vocabulary rows is not:
  // INVALID_ARGUMENT (exit code 3) names the config field that is too small, its value and the
  // largest size that works. MLP columns are cut at multiples of `group_size` if there are enough
  // groups for 8 leaves, else at multiples of its half, its quarter ...: few groups of quantised
  // weights are cut.
  static absl::StatusOr<ShardPlan> Create(const ModelConfig& config, int size, int group_size = 1);
  // Unequal parts, for unequal devices: KV groups and MLP columns in proportion to `shares` (one
  // per rank, each more than 0), rounded at the borders, at least one of each; the vocabulary stays
  // even. Needs as many KV heads as ranks. Bits, though not tokens, may differ from other plans.
  static absl::StatusOr<ShardPlan> CreateWithShares(const ModelConfig& config,
                                                    absl::Span<const int64_t> shares,
                                                    int group_size = 1);

  // The same plan for a group that is one stage of a pipeline: its ranks have only these layers.
  ShardPlan OfLayers(Range layers) const;

  const ModelConfig& config() const { return *ranks_.front().model; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const RankShard& rank(int rank) const { return ranks_[rank]; }
  std::vector<int64_t> vocab_cols() const;  // [size] logits columns of each rank

 private:
  ShardPlan() = default;
  // Splits anything that is cut by columns into leaves, as many as there are of heads.
  using CutColumns = absl::FunctionRef<std::vector<Range>(int64_t columns)>;
  static ShardPlan FromLeaves(const ModelConfig& config, int size,
                              const std::vector<Range>& head_leaves,
                              const std::vector<Range>& delta_leaves, CutColumns leaves_of);

  std::vector<RankShard> ranks_;  // never empty
};

}  // namespace bulkhead
