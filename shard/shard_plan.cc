#include "shard/shard_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/arithmetic.h"
#include "base/check.h"
#include "base/exit_code.h"

namespace bulkhead {
namespace {

constexpr int kLeaves = 8;
constexpr int kMaxSize = 1 << 16;  // bounds the plan's own memory

// The share of `total` of the left ceil(parts / 2) parts, halves rounded up.
int64_t LeftShare(int64_t total, int64_t parts) {
  const int64_t left_parts = (parts + 1) / 2;
  return (2 * total * left_parts + parts) / (2 * parts);
}

void Partition(Range range, int parts, std::vector<Range>& out) {
  if (parts == 1) {
    out.push_back(range);
    return;
  }
  const int64_t middle = range.begin + LeftShare(range.size(), parts);
  Partition({range.begin, middle}, (parts + 1) / 2, out);
  Partition({middle, range.end}, parts / 2, out);
}

// Splits `heads` into `parts`: at KV-group borders of the first size while the range has several
// groups, then of the next size, then at heads. Every range is whole groups, or within one.
void PartitionHeads(Range heads, absl::Span<const int64_t> groups, int parts,
                    std::vector<Range>& out) {
  if (parts == 1) {
    out.push_back(heads);
    return;
  }
  int64_t left = LeftShare(heads.size(), parts);
  for (const int64_t group : groups) {
    const int64_t count = heads.size() / group;
    if (count < 2) continue;
    left = std::clamp<int64_t>(LeftShare(count, parts), 1, count - 1) * group;
    break;
  }
  const int64_t middle = heads.begin + left;
  PartitionHeads({heads.begin, middle}, groups, (parts + 1) / 2, out);
  PartitionHeads({middle, heads.end}, groups, parts / 2, out);
}

// The unit of MLP splits: the group size, halved until there are as many units as leaves.
int64_t MlpUnit(int64_t columns, int group_size, int num_leaves) {
  int64_t unit = group_size;
  while (unit > 1 && columns / unit < std::max(num_leaves, kLeaves)) unit /= 2;
  return unit;
}

std::vector<Range> InUnits(std::vector<Range> ranges, int64_t unit, int64_t columns) {
  for (Range& range : ranges) {
    range = {std::min(range.begin * unit, columns), std::min(range.end * unit, columns)};
  }
  return ranges;
}

bool IsSubtreeSize(int size) { return size == 1 || size == 2 || size == 4 || size == 8; }

// Borders of `leaves`, relative to the begin of the first.
std::vector<int64_t> BordersOf(absl::Span<const Range> leaves) {
  std::vector<int64_t> borders = {0};
  for (const Range& leaf : leaves) borders.push_back(leaf.end - leaves.front().begin);
  return borders;
}

absl::Status CheckSplittable(const ModelConfig& config, int size) {
  if (size < 1 || size > kMaxSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group of ", size, " ranks is not possible; 1 to ", kMaxSize, " are"));
  }
  struct Dimension {
    const char* field;
    int value;  // 0: the model has none
  };
  for (const auto& [field, value] :
       {Dimension{"intermediate_size", config.intermediate_size},
        Dimension{"an expert's intermediate size", config.moe.intermediate_size},
        Dimension{"the shared expert's intermediate size", config.moe.shared_intermediate_size},
        Dimension{"vocab_size", config.vocab_size}}) {
    if (value == 0 || value >= size) continue;
    int largest = config.vocab_size;
    for (const int other : {config.intermediate_size, config.moe.intermediate_size,
                            config.moe.shared_intermediate_size, kMaxSize}) {
      if (other > 0) largest = std::min(largest, other);
    }
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is ", value, ", too small to be split over ", size,
                     " ranks; the largest group that works has ", largest));
  }
  return absl::OkStatus();
}

// The KV heads that `heads` read, each shared by `group` heads, and each head's index in `read`.
void AssignRead(Range heads, int64_t group, Range& read, std::vector<int32_t>& head_to_read) {
  if (heads.empty()) return;
  read = {heads.begin / group, (heads.end - 1) / group + 1};
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    head_to_read.push_back(static_cast<int32_t>(head / group - read.begin));
  }
}

void AssignKvHeads(int64_t group, RankShard& shard) {
  AssignRead(shard.heads, group, shard.kv_heads, shard.head_to_kv);
  if (shard.heads.empty()) {
    shard.kv_head_borders.assign(shard.head_borders.size(), 0);
    return;
  }
  for (const int64_t border : shard.head_borders) {
    shard.kv_head_borders.push_back(CeilDiv(shard.heads.begin + border, group) -
                                    shard.kv_heads.begin);
  }
}

// Query heads per KV head in layers with full_heads; 0: there are none.
int64_t FullGroup(const ModelConfig& config) {
  const FullHeadsConfig& full = config.full_heads;
  return full.head_dim > 0 ? config.num_attention_heads / full.num_key_value_heads : 0;
}

// Value heads of linear attention per key head.
int64_t DeltaGroup(const ModelConfig& config) {
  const GatedDeltaConfig& delta = config.delta;
  return delta.num_key_heads > 0 ? delta.num_value_heads / delta.num_key_heads : 1;
}

}  // namespace

std::vector<Range> PartitionEvenly(int64_t total, int parts) {
  BH_CHECK(total >= 0 && parts >= 1);
  std::vector<Range> ranges;
  ranges.reserve(parts);
  Partition({0, total}, parts, ranges);
  return ranges;
}

std::vector<Range> PartitionByShares(int64_t total, absl::Span<const int64_t> shares) {
  const auto parts = static_cast<int64_t>(shares.size());
  BH_CHECK(parts >= 1 && total >= parts);
  double sum = 0;
  for (const int64_t share : shares) sum += static_cast<double>(share);
  std::vector<Range> ranges;
  double before = 0;
  int64_t begin = 0;
  for (int64_t i = 0; i < parts; ++i) {
    before += static_cast<double>(shares[i]);
    // Leaves at least one for this part and for each later part.
    const int64_t end =
        i + 1 == parts
            ? total
            : std::clamp(
                  static_cast<int64_t>(std::floor(static_cast<double>(total) * before / sum + 0.5)),
                  begin + 1, total - (parts - 1 - i));
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

absl::StatusOr<ShardPlan> ShardPlan::Create(const ModelConfig& config, int size, int group_size) {
  if (const absl::Status status = CheckSplittable(config, size); !status.ok()) {
    return WithExitCode(status, ExitCode::kModelRefused);
  }
  // The same leaves at 1, 2, 4 and 8 ranks; otherwise each rank is a single leaf.
  const int num_leaves = IsSubtreeSize(size) ? kLeaves : size;
  const int64_t group = config.num_attention_heads / config.num_key_value_heads;
  const int64_t full_group = FullGroup(config);
  std::vector<Range> head_leaves;
  PartitionHeads(
      {0, config.num_attention_heads},
      {std::max(group, full_group), full_group > 0 ? std::min(group, full_group) : group},
      num_leaves, head_leaves);
  std::vector<Range> delta_leaves;
  PartitionHeads({0, config.delta.num_value_heads}, {DeltaGroup(config)}, num_leaves, delta_leaves);
  return FromLeaves(config, size, head_leaves, delta_leaves, [&](int64_t columns) {
    const int64_t unit = MlpUnit(columns, group_size, num_leaves);
    return InUnits(PartitionEvenly(CeilDiv(columns, unit), num_leaves), unit, columns);
  });
}

absl::StatusOr<ShardPlan> ShardPlan::CreateWithShares(const ModelConfig& config,
                                                      absl::Span<const int64_t> shares,
                                                      int group_size) {
  const int size = static_cast<int>(shares.size());
  absl::Status status = CheckSplittable(config, size);
  // Heads of latent attention are not grouped by KV heads.
  const int groups = config.has_latents() ? config.num_attention_heads : config.num_key_value_heads;
  if (status.ok() && groups < size) {
    status = absl::InvalidArgumentError(
        absl::StrCat(config.has_latents()
                         ? "unequal shares need a head for every rank; num_attention_heads is "
                         : "unequal shares need a KV head for every rank; num_key_value_heads is ",
                     groups, " and the group has ", size, " ranks"));
  }
  const int delta_keys = config.delta.num_key_heads;
  if (status.ok() && delta_keys > 0 && delta_keys < size) {
    status = absl::InvalidArgumentError(
        absl::StrCat("unequal shares need a key head of linear attention for every rank; "
                     "linear_num_key_heads is ",
                     delta_keys, " and the group has ", size, " ranks"));
  }
  for (const int64_t share : shares) {
    if (status.ok() && share < 1) {
      status = absl::InvalidArgumentError(absl::StrCat("a share of ", share, " is less than 1"));
    }
  }
  if (!status.ok()) return WithExitCode(status, ExitCode::kModelRefused);
  const auto by_groups = [&](int64_t num_groups, int64_t group) {
    std::vector<Range> ranges = PartitionByShares(num_groups, shares);
    for (Range& range : ranges) range = {range.begin * group, range.end * group};
    return ranges;
  };
  const std::vector<Range> heads = by_groups(groups, config.num_attention_heads / groups);
  const std::vector<Range> delta_heads =
      delta_keys > 0 ? by_groups(delta_keys, DeltaGroup(config)) : std::vector<Range>(size);
  return FromLeaves(config, size, heads, delta_heads, [&](int64_t columns) {
    const int64_t unit = MlpUnit(columns, group_size, size);
    return InUnits(PartitionByShares(CeilDiv(columns, unit), shares), unit, columns);
  });
}

ShardPlan ShardPlan::FromLeaves(const ModelConfig& config, int size,
                                const std::vector<Range>& head_leaves,
                                const std::vector<Range>& delta_leaves, CutColumns leaves_of) {
  const int leaves_per_rank = static_cast<int>(head_leaves.size()) / size;
  const int64_t group = config.num_attention_heads / config.num_key_value_heads;
  const std::vector<Range> vocab = PartitionEvenly(config.vocab_size, size);
  const std::vector<Range> experts = PartitionEvenly(config.moe.num_experts, size);
  const auto leaves_if_any = [&](int columns) {
    return columns > 0 ? leaves_of(columns) : std::vector<Range>(head_leaves.size());
  };
  const std::vector<Range> mlp = leaves_if_any(config.intermediate_size);
  const std::vector<Range> expert_mlp = leaves_if_any(config.moe.intermediate_size);
  const std::vector<Range> shared_mlp = leaves_if_any(config.moe.shared_intermediate_size);

  ShardPlan plan;
  const auto model = std::make_shared<const ModelConfig>(config);
  for (int rank = 0; rank < size; ++rank) {
    const int first = rank * leaves_per_rank;
    const auto take = [&](const std::vector<Range>& leaves, Range& owned,
                          std::vector<int64_t>& borders) {
      owned = {leaves[first].begin, leaves[first + leaves_per_rank - 1].end};
      borders = BordersOf(absl::MakeConstSpan(leaves).subspan(first, leaves_per_rank));
    };
    RankShard shard;
    shard.model = model;
    shard.rank = rank;
    shard.size = size;
    take(head_leaves, shard.heads, shard.head_borders);
    take(delta_leaves, shard.delta_values, shard.delta_borders);
    take(mlp, shard.mlp, shard.mlp_borders);
    take(expert_mlp, shard.expert_mlp, shard.expert_mlp_borders);
    take(shared_mlp, shard.shared_mlp, shard.shared_mlp_borders);
    shard.vocab = vocab[rank];
    shard.experts = experts[rank];
    shard.layers = {0, config.num_hidden_layers};
    AssignKvHeads(group, shard);
    if (const int64_t full_group = FullGroup(config); full_group > 0) {
      AssignRead(shard.heads, full_group, shard.full_kv_heads, shard.full_head_to_kv);
    }
    AssignRead(shard.delta_values, DeltaGroup(config), shard.delta_keys, shard.value_to_key);
    plan.ranks_.push_back(std::move(shard));
  }
  return plan;
}

ShardPlan ShardPlan::OfLayers(Range layers) const {
  BH_CHECK(layers.begin >= 0 && layers.size() > 0 && layers.end <= config().num_hidden_layers);
  ShardPlan stage = *this;
  for (RankShard& shard : stage.ranks_) shard.layers = layers;
  return stage;
}

std::vector<int64_t> ShardPlan::vocab_cols() const {
  std::vector<int64_t> cols;
  for (const RankShard& shard : ranks_) cols.push_back(shard.vocab.size());
  return cols;
}

}  // namespace bulkhead
