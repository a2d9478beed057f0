// ShardPlan: which part of the model each rank owns, for one config and one group size. Pure
// arithmetic.
//
// Attention splits at KV-group borders while there are any, then at head borders (the KV head is
// then replicated); the MLP splits its inner width; the vocabulary splits by rows. For 1, 2, 4 and
// 8 ranks the split is halving, larger half first, three times: 8 leaves, of which a rank owns a
// whole subtree (docs/architecture.md, Determinism). Other group sizes own ranges of their own, one
// slice each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "memory/linear.h"
#include "shard/model_config.h"

namespace bulkhead {

// Half-open.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool operator==(const Range&) const = default;
};

// [0, total) over `parts` parts: ceil(parts/2) and the rest share it in proportion, halves rounded
// up, all the way down. For a power of two: halving, larger half first.
std::vector<Range> PartitionEvenly(int64_t total, int parts);
// [0, total) in proportion to `shares`, each part at least 1; total >= shares.size().
std::vector<Range> PartitionByShares(int64_t total, absl::Span<const int64_t> shares);

// One rank's part of the model. ShardPlan::Create makes it.
struct RankShard {
  std::shared_ptr<const ModelConfig> model;  // what it is a part of; never null
  int rank = 0;
  int size = 1;
  Range heads;                        // of H; may be empty, or less than a KV group
  Range kv_heads;                     // of K; the heads that `heads` read; empty when heads is
  std::vector<int32_t> head_to_kv;    // [h] index on this rank
  Range mlp;                          // of F
  Range vocab;                        // of V
  std::vector<int64_t> o_borders;     // in columns of this rank's o_proj: the leaves it owns
  std::vector<int64_t> down_borders;  // likewise of down_proj
};

// How the matrices of a model are held.
struct WeightFormats {
  WeightFormat layers = WeightFormat::kF32;  // q, k, v, o, gate, up and down
  int group_size = 0;                        // of the layers', where quantised
  bool act_order = false;                    // their groups have an index
  WeightFormat tables = WeightFormat::kF32;  // embedding and lm_head
  int table_group_size = 0;

  // All of them as numbers of `dtype`.
  static WeightFormats Of(DType dtype);
  // As the checkpoint holds them; what is not quantised there as numbers of `dtype`.
  static WeightFormats StoredBy(const ModelConfig& config, DType dtype);
  // Quantised when they are loaded, in groups of `group_size` inputs (0: 128); the tables of kInt4
  // are in int8.
  static WeightFormats AtLoad(WeightFormat format, int group_size = 0);
  bool operator==(const WeightFormats&) const = default;
};
// "bfloat16"; "int4 in groups of 128, tables float16".
std::string WeightFormatsText(const WeightFormats& formats);

class ShardPlan {
 public:
  // A rank without heads is legal; one without MLP columns or vocabulary rows is not:
  // INVALID_ARGUMENT (exit code 3) names the config field that is too small, its value and the
  // largest size that works.
  // MLP columns are cut at multiples of `group_size` where there are enough groups for 8 leaves,
  // else at multiples of its half, its quarter ...: of quantised weights few groups are cut.
  static absl::StatusOr<ShardPlan> Create(const ModelConfig& config, int size, int group_size = 1);
  // Unequal parts, for unequal devices: KV groups and MLP columns in proportion to `shares` (one
  // per rank, each more than 0), rounded at the borders, at least one of each; the vocabulary stays
  // even. Needs as many KV heads as ranks. Equal tokens, not equal bits, to other plans.
  static absl::StatusOr<ShardPlan> CreateWithShares(const ModelConfig& config,
                                                    absl::Span<const int64_t> shares,
                                                    int group_size = 1);

  const ModelConfig& config() const { return *ranks_.front().model; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const RankShard& rank(int rank) const { return ranks_[rank]; }
  // More ranks than KV groups: some KV heads live on several ranks, and more ranks shrink the cache
  // no more.
  bool replicates_kv_heads() const;
  std::vector<int64_t> vocab_cols() const;  // [size] logits columns of each rank

 private:
  ShardPlan() = default;
  static ShardPlan FromLeaves(const ModelConfig& config, int size,
                              const std::vector<Range>& head_leaves,
                              const std::vector<Range>& mlp_leaves);

  std::vector<RankShard> ranks_;  // never empty
};

// ---- the table from weight names to splits

enum class WeightKind {
  kEmbedding,
  kQ,
  kK,
  kV,
  kO,
  kGate,
  kUp,
  kDown,
  kLmHead,  // matrices
  kQBias,
  kKBias,
  kVBias,
  kOBias,
  kGateBias,
  kUpBias,
  kDownBias,  // vectors
  kInputNorm,
  kPostAttentionNorm,
  kQNorm,
  kKNorm,
  kFinalNorm,
};

struct WeightName {
  WeightKind kind;
  int layer = -1;  // -1 for weights outside the layers
};

// NOT_FOUND for a name that the table does not have: nothing is guessed.
absl::StatusOr<WeightName> ParseWeightName(absl::string_view name);
std::string WeightNameOf(WeightKind kind, int layer);

bool IsVector(WeightKind kind);  // biases and norms

// The full shape that `config` demands of a weight: {rows, cols}; vectors are {1, cols}.
std::pair<int64_t, int64_t> FullShapeOf(WeightKind kind, const ModelConfig& config);

// The rows (outputs) and columns (inputs) of the full weight that `shard` owns.
struct WeightSlice {
  Range rows;
  Range cols;
};
WeightSlice SliceOf(WeightKind kind, const ModelConfig& config, const RankShard& shard);

// Every weight that this config must have.
std::vector<WeightName> RequiredWeights(const ModelConfig& config);

// True for names that checkpoints carry and the model does not need: caches of rotary frequencies,
// and lm_head when it is tied to the embedding.
bool IsKnownSurplus(absl::string_view name, const ModelConfig& config);

// The fused matrices that the model multiplies with: per layer qkv = [q; k; v], o, gate_up = [gate;
// up], down; and embedding and lm_head (one matrix when tied).
enum class LinearKind { kQkv, kO, kGateUp, kDown, kEmbedding, kLmHead };
LinearShape LinearShapeOf(LinearKind kind, const ModelConfig& config, const RankShard& shard,
                          const WeightFormats& held_as);

// The row of its fused matrix (or element of its fused bias) where `kind` begins on this rank: h*d
// for k, (h+k)*d for v, f for up, 0 for the rest.
int64_t FusedRowOf(WeightKind kind, const ModelConfig& config, const RankShard& shard);

}  // namespace bulkhead
