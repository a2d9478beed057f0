#include "memory/capacity.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/arithmetic.h"
#include "base/bytes.h"

namespace bulkhead {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
// Block ids are int32; block 0 is not counted.
constexpr int64_t kMaxBlocks = std::numeric_limits<int32_t>::max() - 1;
// More than any rank has: a rule that needs more cannot be satisfied.
constexpr int64_t kMaxTotal = int64_t{1} << 46;

// Saturating product.
int64_t Product(int64_t count, int64_t bytes) {
  return bytes > 0 && count > kNoLimit / bytes ? kNoLimit : count * bytes;
}

int64_t Share(double fraction, int64_t bytes) {
  return bytes <= 0 ? 0 : static_cast<int64_t>(std::floor(fraction * static_cast<double>(bytes)));
}

// The upper bound on the group's blocks from the rule alone, regardless of memory: a rule in bytes
// is divided by the largest block size of all ranks.
int64_t BlocksByRule(const KvRule& rule, const std::vector<RankNeeds>& needs) {
  if (rule.kind != KvRule::Kind::kBytes) return kNoLimit;
  int64_t blocks = kMaxBlocks;
  for (const RankNeeds& rank : needs) {
    if (rank.kv_block_bytes > 0) blocks = std::min(blocks, rule.count / rank.kv_block_bytes);
  }
  return blocks;
}

// One rank's result under given limits.
struct RankFit {
  std::optional<Shortage> shortage;
  int64_t own_blocks = 0;
};

class RankFitter {
 public:
  // `group_blocks`: BlocksByRule.
  RankFitter(const CapacityRequest& request, const Limits& limits, const RankNeeds& needs,
             int64_t group_blocks)
      : rule_(request.rule),
        needs_(needs),
        group_blocks_(group_blocks),
        least_blocks_(limits.LeastBlocks(limits.max_model_len)),
        wanted_blocks_(request.cap_at_max_num_seqs ? WantedBlocks(limits) : kMaxBlocks) {}

  RankFit Fit(const DeviceBudget& budget) const {
    RankFit fit;
    int64_t left = AvailableBytes(budget);
    for (int i = 0; i < kNumMemoryCategories; ++i) {
      const int64_t bytes = needs_.category_bytes[i];
      if (bytes > left) {
        fit.shortage =
            Shortage{budget.rank, static_cast<MemoryCategory>(i), bytes - left, bytes, left};
        return fit;
      }
      left -= bytes;
    }
    FitKv(budget, left, fit);
    return fit;
  }

  // The smallest total for which Fit finds no shortage; 0: no amount of memory is enough.
  int64_t RequiredBytes(DeviceBudget budget) const {
    const auto fits = [&](int64_t total_bytes) {
      budget.total_bytes = total_bytes;
      return !Fit(budget).shortage.has_value();
    };
    if (!fits(kMaxTotal)) return 0;
    int64_t low = 0;
    int64_t high = kMaxTotal;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (fits(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // The rule as arithmetic; empty if a category before KV does not fit.
  std::string RuleText(const DeviceBudget& budget) const {
    const int64_t block = needs_.kv_block_bytes;
    if (block == 0) return "no head is on this rank";
    int64_t left = AvailableBytes(budget);
    for (const int64_t bytes : needs_.category_bytes) left -= bytes;
    if (left < 0) return "";
    switch (rule_.kind) {
      case KvRule::Kind::kNone: {
        const bool shared = SharedWithOthers(budget);
        const std::string available = absl::StrCat(
            shared ? "half of " : "", FormatBytes(left), " left after all other arenas",
            shared ? " (but no less than one sequence)" : "");
        const int64_t wanted = Product(wanted_blocks_, block);
        if (wanted_blocks_ == kMaxBlocks) return available;
        if (RuleBytes(budget, left) < wanted) return available;
        return absl::StrCat("max_num_seqs x max_model_len takes ", FormatBytes(wanted), " of ",
                            available);
      }
      case KvRule::Kind::kUtilization: {
        const int64_t free = budget.free_bytes() - budget.reserve_bytes;
        const int64_t share = Share(rule_.fraction, budget.total_bytes);
        return absl::StrFormat(
            "%g x %s total = %s for all arenas%s", rule_.fraction, FormatBytes(budget.total_bytes),
            FormatBytes(share),
            free < share ? absl::StrCat(", but others and the reserve leave ", FormatBytes(free))
                         : "");
      }
      case KvRule::Kind::kShareOfFree:
        return absl::StrFormat("%g x %s free after weights = %s", rule_.fraction,
                               FormatBytes(FreeAfterWeights(budget)),
                               FormatBytes(Share(rule_.fraction, FreeAfterWeights(budget))));
      case KvRule::Kind::kBlocks:
        return absl::StrCat(FormatCount(rule_.count),
                            rule_.count == 1 ? " block of " : " blocks of ", FormatBytes(block),
                            " = ", FormatBytes(Product(rule_.count, block)),
                            " by --cache-max-entry-count");
      case KvRule::Kind::kBytes:
        return absl::StrCat(FormatBytes(rule_.count), " by --kv-cache-bytes");
    }
    return "";
  }

 private:
  // For max_num_seqs sequences of the full length.
  static int64_t WantedBlocks(const Limits& limits) {
    const int64_t all = Product(limits.max_num_seqs, limits.BlocksFor(limits.max_model_len));
    return all > kMaxBlocks - limits.step_blocks() ? kMaxBlocks : all + limits.step_blocks();
  }

  // Available for all arenas.
  int64_t AvailableBytes(const DeviceBudget& budget) const {
    const int64_t available = budget.free_bytes() - budget.reserve_bytes;
    return rule_.kind == KvRule::Kind::kUtilization
               ? std::min(available, Share(rule_.fraction, budget.total_bytes))
               : available;
  }

  int64_t FreeAfterWeights(const DeviceBudget& budget) const {
    return budget.free_bytes() - needs_.category_bytes[static_cast<int>(MemoryCategory::kWeights)];
  }

  static bool SharedWithOthers(const DeviceBudget& budget) {
    return budget.probed && budget.on_cpu();
  }

  // The bytes that the rule grants to KV out of `left`.
  int64_t RuleBytes(const DeviceBudget& budget, int64_t left) const {
    const int64_t block = needs_.kv_block_bytes;
    switch (rule_.kind) {
      case KvRule::Kind::kNone: {
        const int64_t one_sequence = Product(least_blocks_, block);
        const int64_t most =
            SharedWithOthers(budget) ? std::max(left / 2, std::min(left, one_sequence)) : left;
        return std::min(most, Product(wanted_blocks_, block));
      }
      case KvRule::Kind::kUtilization:
        return left;
      case KvRule::Kind::kShareOfFree:
        return Share(rule_.fraction, FreeAfterWeights(budget));
      case KvRule::Kind::kBlocks:
        return Product(rule_.count, block);
      case KvRule::Kind::kBytes:
        return rule_.count;
    }
    return 0;
  }

  void FitKv(const DeviceBudget& budget, int64_t left, RankFit& fit) const {
    const int64_t block = needs_.kv_block_bytes;
    if (block == 0) return;  // no KV heads: sets no limit
    const int64_t given = RuleBytes(budget, left);
    const int64_t ruled = given / block;
    const auto short_of = [&](int64_t needed, int64_t have) {
      fit.shortage = Shortage{budget.rank, MemoryCategory::kKv, needed - have, needed, have};
    };
    // No rank needs more than the maximum size of the pool.
    const int64_t taken = Product(std::min(ruled, group_blocks_), block);
    if (taken > left) {
      short_of(taken, left);
    } else if (ruled < least_blocks_) {
      short_of(Product(least_blocks_, block), given);
    }
    fit.own_blocks = std::min({kMaxBlocks, ruled, left / block});
  }

  const KvRule& rule_;
  const RankNeeds& needs_;
  const int64_t group_blocks_;
  const int64_t least_blocks_;
  const int64_t wanted_blocks_;
};

class Planner {
 public:
  Planner(absl::Span<const DeviceBudget> budgets, const CapacityRequest& request,
          const NeedsOf& needs_of)
      : budgets_(budgets), request_(request), needs_of_(needs_of) {}

  // Reduces the limits that may be fitted, in turn, until everything fits.
  Limits FitLimits() const {
    Limits limits = request_.given.Over(request_.start);
    struct Give {
      int Limits::*what;
      bool given;
      int floor;
    };
    const bool len = request_.given.max_model_len.has_value();
    const bool chunk = request_.given.max_num_batched_tokens.has_value();
    const bool seqs = request_.given.max_num_seqs.has_value();
    const Give gives[] = {
        {&Limits::max_model_len, len, 4096},
        {&Limits::max_num_batched_tokens, chunk, 512},
        {&Limits::max_num_seqs, seqs, 16},
        {&Limits::max_model_len, len, 4 * limits.block_tokens},
        {&Limits::max_num_batched_tokens, chunk, 64},
        {&Limits::max_num_seqs, seqs, 1},
    };
    for (const Give& give : gives) {
      int& limit = limits.*give.what;
      while (!give.given && limit > give.floor && !Fits(limits)) {
        limit = std::max(limit / 2, give.floor);
      }
    }
    return limits;
  }

  Capacity Plan(const Limits& limits) const {
    Capacity plan;
    plan.limits = Grouped(limits);
    const std::vector<RankNeeds> needs = NeedsOfAll(plan.limits);
    int64_t& blocks = plan.limits.num_kv_blocks = kMaxBlocks;
    const int64_t group_blocks = BlocksByRule(request_.rule, needs);
    bool enough_exists = true;
    for (size_t i = 0; i < budgets_.size(); ++i) {
      const DeviceBudget& budget = budgets_[i];
      const RankFitter fitter(request_, plan.limits, needs[i], group_blocks);
      const RankFit fit = fitter.Fit(budget);
      RankCapacity rank{.budget = budget,
                        .arena_bytes = needs[i].category_bytes,
                        .draft_bytes = needs[i].draft_bytes,
                        .kv_block_bytes = needs[i].kv_block_bytes,
                        .kv_layers_bytes = needs[i].kv_layers_bytes,
                        .stored_weight_bytes = needs[i].stored_weight_bytes,
                        .host_bytes = needs[i].host_bytes,
                        .loading_bytes = needs[i].open_weight_bytes + budget.transient_bytes,
                        .own_blocks = fit.own_blocks,
                        .required_bytes = fitter.RequiredBytes(budget),
                        .rule_text = fitter.RuleText(budget)};
      enough_exists = enough_exists && rank.required_bytes > 0;
      const auto& shortage = fit.shortage;
      if (shortage && (!plan.shortage || shortage->bytes > plan.shortage->bytes)) {
        plan.shortage = shortage;
      }
      if (rank.kv_block_bytes > 0) {
        blocks = std::min(blocks, fit.own_blocks);
      }
      plan.ranks.push_back(std::move(rank));
    }
    if (!enough_exists) {  // per rank: then the others' memory changes nothing
      for (RankCapacity& rank : plan.ranks) rank.required_bytes = 0;
    }
    plan.fits = !plan.shortage.has_value();
    Complete(plan);
    return plan;
  }

 private:
  std::vector<RankNeeds> NeedsOfAll(const Limits& limits) const {
    std::vector<RankNeeds> needs;
    for (const DeviceBudget& budget : budgets_) needs.push_back(needs_of_(budget.rank, limits));
    return needs;
  }

  Limits Grouped(Limits limits) const {
    if (request_.group_layers != nullptr) request_.group_layers(limits);
    return limits;
  }

  bool Fits(const Limits& fitted) const {
    const Limits limits = Grouped(fitted);
    const std::vector<RankNeeds> needs = NeedsOfAll(limits);
    const int64_t group_blocks = BlocksByRule(request_.rule, needs);
    for (size_t i = 0; i < budgets_.size(); ++i) {
      const RankFitter fitter(request_, limits, needs[i], group_blocks);
      if (fitter.Fit(budgets_[i]).shortage.has_value()) return false;
    }
    return true;
  }

  // Fills in what depends on the group's number of blocks.
  void Complete(Capacity& plan) const {
    int64_t& blocks = plan.limits.num_kv_blocks;
    if (!plan.fits) blocks = 0;
    plan.full_sequences = plan.limits.full_sequences();
    const RankCapacity* binding = nullptr;
    for (RankCapacity& rank : plan.ranks) {
      const int64_t block = rank.kv_block_bytes;
      rank.arena_bytes[static_cast<int>(MemoryCategory::kKv)] = blocks * block;
      rank.draft_bytes[static_cast<int>(MemoryCategory::kKv)] *= blocks;
      rank.free_bytes = rank.budget.free_bytes() - rank.budget.reserve_bytes;
      for (const int64_t bytes : rank.arena_bytes) rank.free_bytes -= bytes;
      if (plan.fits && block > 0) {
        rank.stranded_bytes = (rank.own_blocks - blocks) * block;
      }
      // If several ranks have exactly the pool's blocks, the one with the least free memory binds.
      if (block > 0 && rank.own_blocks == blocks &&
          (binding == nullptr || rank.free_bytes < binding->free_bytes)) {
        binding = &rank;
      }
    }
    if (plan.shortage.has_value()) {
      plan.binding_rank = plan.shortage->rank;
      plan.limiting_category = plan.shortage->category;
    } else if (binding != nullptr) {
      plan.binding_rank = binding->budget.rank;
    }
  }

  absl::Span<const DeviceBudget> budgets_;
  const CapacityRequest& request_;
  const NeedsOf& needs_of_;
};

}  // namespace

Capacity PlanCapacity(absl::Span<const DeviceBudget> budgets, const CapacityRequest& request,
                      const NeedsOf& needs_of) {
  const Planner planner(budgets, request, needs_of);
  return planner.Plan(planner.FitLimits());
}

}  // namespace bulkhead
