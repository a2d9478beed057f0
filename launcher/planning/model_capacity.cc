#include "launcher/planning/model_capacity.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/planning/largest_that_fits.h"
#include "launcher/planning/model_source.h"
#include "memory/bytes.h"
#include "memory/exit_code.h"
#include "memory/kv_format_name.h"
#include "memory/status.h"
#include "shard/shard_plan.h"

namespace bulkhead {
namespace {

constexpr int kMostRanks = 64;       // that a remedy looks at
constexpr int kLeastAutoBlocks = 4;  // of a length that is not given
constexpr int64_t kMostBlocks = int64_t{1} << 30;
// Where limits that are not given start.
constexpr int kCpuMaxNumSeqs = 64;
constexpr int kCpuMaxNumBatchedTokens = 2048;
constexpr int kGpuMaxNumSeqs = 256;
constexpr int kGpuMaxNumBatchedTokens = 8192;

}  // namespace

Transport GpuTransport(CommChoice comm, int size) {
  if (size == 1) return Transport::kShared;
  return comm == CommChoice::kStaged ? Transport::kStaged : Transport::kNccl;
}

// What differs from the command line.
struct ModelCapacity::Change {
  std::optional<int> max_num_seqs, max_model_len, max_num_batched_tokens;
  std::optional<KvRule> rule;
  std::optional<KvFormat> kv_format;
  std::optional<WeightFormat> weight_dtype;
};

ModelCapacity::ModelCapacity(const ModelConfig& config, const ModelLimits& formats,
                             const EngineOptions& options, const BackendSizes& sizes,
                             DeviceKind kind)
    : config_(config), formats_(formats), options_(options), sizes_(sizes), kind_(kind) {}

absl::StatusOr<Capacity> ModelCapacity::Plan(absl::Span<const DeviceBudget> budgets) const {
  return PlanWith(budgets, {});
}

absl::StatusOr<Capacity> ModelCapacity::PlanAt(absl::Span<const DeviceBudget> budgets,
                                               int max_num_seqs, int max_model_len) const {
  Change change;
  change.max_num_seqs = max_num_seqs;
  change.max_model_len = max_model_len;
  return PlanWith(budgets, change);
}

absl::StatusOr<ShardPlan> ModelCapacity::Split(absl::Span<const DeviceBudget> budgets) const {
  return SplitFor(budgets, formats_.weights);
}

absl::StatusOr<ShardPlan> ModelCapacity::SplitFor(absl::Span<const DeviceBudget> budgets,
                                                  const WeightFormats& weights) const {
  const int size = static_cast<int>(budgets.size());
  std::vector<int64_t> shares = options_.tp_shares;
  if (options_.tp_shares_auto) {
    for (const DeviceBudget& budget : budgets) {
      shares.push_back(std::max<int64_t>(1, budget.free_bytes() - budget.reserve_bytes));
    }
  }
  const int group_size = std::max(1, weights.group_size);
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

absl::StatusOr<Capacity> ModelCapacity::PlanWith(absl::Span<const DeviceBudget> budgets,
                                                 const Change& change) const {
  ModelLimits limits = formats_;
  limits.kv_format = change.kv_format.value_or(formats_.kv_format);
  if (change.weight_dtype.has_value()) {
    limits.weights = WeightFormats::AtLoad(*change.weight_dtype, options_.weight_group_size);
    limits.activation = ActivationOf(options_, limits.weights);
  }
  BH_ASSIGN_OR_RETURN(const ShardPlan plan, SplitFor(budgets, limits.weights));
  const auto either = [](const auto& changed, const auto& given) {
    return changed.has_value() ? changed : given;
  };
  CapacityRequest request;
  request.max_num_seqs = either(change.max_num_seqs, options_.max_num_seqs);
  request.max_model_len = either(change.max_model_len, options_.max_model_len);
  request.max_num_batched_tokens =
      either(change.max_num_batched_tokens, options_.max_num_batched_tokens);
  const bool gpu = kind_ == DeviceKind::kGpu;
  const bool one = budgets.size() == 1;
  if (gpu && one != (limits.transport == Transport::kShared)) {
    limits.transport = GpuTransport(options_.comm, static_cast<int>(budgets.size()));
  }
  request.start = {gpu ? kGpuMaxNumSeqs : kCpuMaxNumSeqs, config_.max_position_embeddings,
                   gpu ? kGpuMaxNumBatchedTokens : kCpuMaxNumBatchedTokens};
  request.cap_at_max_num_seqs = !gpu;
  request.block_tokens = formats_.block_tokens;
  request.rule = change.rule.value_or(options_.kv_rule);
  return PlanCapacity(budgets, request, [&](int rank, const GroupLimits& fitted) {
    limits.max_num_seqs = fitted.max_num_seqs;
    limits.max_model_len = fitted.max_model_len;
    limits.max_num_batched_tokens = fitted.max_num_batched_tokens;
    return FootprintOf(plan, rank, limits, sizes_);
  });
}

bool ModelCapacity::Fits(const std::vector<DeviceBudget>& budgets, const Change& change) const {
  const absl::StatusOr<Capacity> plan = PlanWith(budgets, change);
  return plan.ok() && plan->fits;
}

void ModelCapacity::TryLimits(const std::vector<DeviceBudget>& budgets, Remedies& remedies) const {
  struct Limit {
    const char* flag;
    std::optional<int> given;
    std::optional<int> Change::*changed;
  };
  const Limit limits[] = {
      {"--max-num-seqs", options_.max_num_seqs, &Change::max_num_seqs},
      {"--max-model-len", options_.max_model_len, &Change::max_model_len},
      {"--max-num-batched-tokens", options_.max_num_batched_tokens,
       &Change::max_num_batched_tokens},
  };
  for (const Limit& limit : limits) {
    if (!limit.given.has_value()) continue;  // it has given way already
    const int fitting = LargestThatFits(1, *limit.given - 1, [&](int value) {
      Change change;
      change.*limit.changed = value;
      return Fits(budgets, change);
    });
    // A sequence of one token cannot generate.
    if (fitting == 0 || (limit.changed == &Change::max_model_len && fitting < 2)) continue;
    const std::string value = absl::StrCat(fitting);
    remedies.list.push_back(
        {{limit.flag, value},
         absl::StrCat(limit.flag, " ", value, " (asked for: ", *limit.given, ")")});
  }
}

void ModelCapacity::TryKvRules(const Capacity& refused, const std::vector<DeviceBudget>& budgets,
                               Remedies& remedies) const {
  const KvRule::Kind kind = options_.kv_rule.kind;
  if (kind == KvRule::Kind::kNone) return;
  const auto fits = [&](const KvRule& rule) {
    Change change;
    change.rule = rule;
    return Fits(budgets, change);
  };
  const auto percent = [](int n) { return absl::StrFormat("%.2f", n / 100.0); };
  if (kind == KvRule::Kind::kUtilization) {
    for (int n = 1; n <= 100; ++n) {
      if (!fits({.kind = kind, .fraction = n / 100.0})) continue;
      remedies.list.push_back({{"--gpu-memory-utilization", percent(n)},
                               absl::StrCat("--gpu-memory-utilization ", percent(n),
                                            ", the least that holds a sequence")});
      return;
    }
  }
  if (kind == KvRule::Kind::kShareOfFree) {
    for (int n = 99; n >= 1; --n) {
      if (!fits({.kind = kind, .fraction = n / 100.0})) continue;
      remedies.list.push_back(
          {{"--cache-max-entry-count", percent(n)},
           absl::StrCat("--cache-max-entry-count ", percent(n), ", the largest share that fits")});
      return;
    }
  }
  int64_t most_block_bytes = 0;
  for (const RankCapacity& rank : refused.ranks) {
    most_block_bytes = std::max(most_block_bytes, rank.kv_block_bytes);
  }
  if (most_block_bytes == 0) return;
  // The largest number of blocks that fits, as many as were asked for at most.
  const int64_t asked = kind == KvRule::Kind::kBlocks  ? options_.kv_rule.count
                        : kind == KvRule::Kind::kBytes ? options_.kv_rule.count / most_block_bytes
                                                       : 0;
  const int least =
      options_.max_model_len.has_value()
          ? (*options_.max_model_len + refused.block_tokens - 1) / refused.block_tokens
          : kLeastAutoBlocks;
  const int blocks = LargestThatFits(
      least, static_cast<int>(std::min(asked, kMostBlocks)) - 1,
      [&](int count) { return fits({.kind = KvRule::Kind::kBlocks, .count = count}); });
  const std::string bytes = absl::StrCat(blocks * most_block_bytes);
  if (blocks > 0 && kind == KvRule::Kind::kBlocks) {
    remedies.list.push_back(
        {{"--cache-max-entry-count", absl::StrCat(blocks)},
         absl::StrCat("--cache-max-entry-count ", blocks, ", the most that fit")});
  } else if (blocks > 0) {
    remedies.list.push_back(
        {{"--kv-cache-bytes", bytes},
         absl::StrCat("--kv-cache-bytes ", bytes, " (", FormatBytes(blocks * most_block_bytes),
                      "), the most that fit")});
  }
}

void ModelCapacity::TryKvFormats(const std::vector<DeviceBudget>& budgets,
                                 Remedies& remedies) const {
  for (const KvFormat smaller : {KvFormat::kBF16, KvFormat::kInt8, KvFormat::kInt4}) {
    if (KvElementBits(smaller) >= KvElementBits(formats_.kv_format)) continue;
    Change change;
    change.kv_format = smaller;
    if (!Fits(budgets, change)) continue;
    const std::string name(KvFormatName(smaller));
    remedies.list.push_back({{"--kv-cache-dtype", name}, absl::StrCat("--kv-cache-dtype ", name)});
    return;
  }
}

void ModelCapacity::TryWeightFormats(const std::vector<DeviceBudget>& budgets,
                                     Remedies& remedies) const {
  if (config_.quantization.method != QuantizationConfig::Method::kNone) return;
  for (const WeightFormat smaller : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    if (WeightBits(smaller) >= WeightBits(formats_.weights.layers)) continue;
    Change change;
    change.weight_dtype = smaller;
    if (!Fits(budgets, change)) continue;
    const std::string name(WeightFormatName(smaller));
    remedies.list.push_back({{"--weight-dtype", name}, absl::StrCat("--weight-dtype ", name)});
    return;
  }
}

void ModelCapacity::TryMoreRanks(const Capacity& refused, const std::vector<DeviceBudget>& budgets,
                                 Remedies& remedies) const {
  const int size = static_cast<int>(budgets.size());
  if (budgets.front().probed && budgets.front().on_cpu()) {
    remedies.none_because =
        "the ranks of this host share its memory, so that more of them do not help; use a host "
        "with more memory, or a smaller model";
    return;
  }
  if (!options_.tp_shares.empty()) {
    remedies.none_because =
        "--tp-shares names the parts of this many ranks; leave it out to plan more";
    return;
  }
  const bool by_rank =
      options_.device_memory.has_value() && !options_.device_memory->of_rank.empty();
  const auto least = std::min_element(
      budgets.begin(), budgets.end(),
      [](const DeviceBudget& a, const DeviceBudget& b) { return a.total_bytes < b.total_bytes; });
  std::vector<DeviceBudget> more = budgets;
  std::optional<Capacity> last;
  while (static_cast<int>(more.size()) < kMostRanks) {
    more.push_back(*least);
    more.back().rank = static_cast<int>(more.size()) - 1;
    const absl::StatusOr<Capacity> plan = PlanWith(more, {});
    if (!plan.ok()) continue;
    last = *plan;
    if (!plan->fits) continue;
    const std::string ranks = absl::StrCat(more.size());
    Remedy remedy{{"--tensor-parallel-size", ranks},
                  absl::StrCat("a group of ", ranks, " ranks (mpirun -n ", ranks, ")")};
    if (by_rank) {
      remedy.flags.push_back("--device-memory");
      remedy.flags.push_back(absl::StrJoin(more, ",", [](std::string* out, const auto& budget) {
        absl::StrAppend(out, budget.rank, "=", budget.total_bytes);
      }));
      absl::StrAppend(&remedy.text, " of which the new ones have ", FormatBytes(least->total_bytes),
                      " like the smallest");
    }
    remedies.list.push_back(std::move(remedy));
    return;
  }
  const Shortage& now = *refused.shortage;
  if (!last.has_value() || !last->shortage.has_value()) {
    remedies.none_because = absl::StrCat(
        "no number of ranks helps, because the model cannot be "
        "split over more than ",
        size);
    return;
  }
  const Shortage& then = *last->shortage;
  remedies.none_because =
      absl::StrCat("no number of ranks helps, because with ", last->ranks.size(), " ranks ",
                   TermName(then.term), " still needs ", FormatBytes(then.needed_bytes),
                   " of rank ", then.rank, ", where ", FormatBytes(then.left_bytes), " are left",
                   then.term == now.term && then.needed_bytes >= now.needed_bytes
                       ? "; more ranks do not divide it"
                       : "");
}

Remedies ModelCapacity::FindRemedies(const Capacity& refused) const {
  Remedies remedies;
  std::vector<DeviceBudget> budgets;
  for (const RankCapacity& rank : refused.ranks) budgets.push_back(rank.budget);
  TryLimits(budgets, remedies);
  TryKvRules(refused, budgets, remedies);
  TryKvFormats(budgets, remedies);
  TryWeightFormats(budgets, remedies);
  TryMoreRanks(refused, budgets, remedies);
  return remedies;
}

}  // namespace bulkhead
