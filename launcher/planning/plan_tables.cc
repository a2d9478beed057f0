#include "launcher/planning/plan_tables.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "launcher/planning/largest_that_fits.h"
#include "launcher/text_table.h"

namespace bulkhead {
namespace {

constexpr int kMaxTriedRanks = 64;
constexpr int kMaxSeqs = 1024;
constexpr int kShortest = 128;
constexpr int kBarWidth = 40;

int64_t ArenaBytes(const RankCapacity& rank, MemoryCategory category) {
  return rank.arena_bytes[static_cast<int>(category)];
}

// Whether `seqs` sequences of `len` fit in the pool at once.
bool HoldsAll(const ModelCapacity& model, const std::vector<DeviceBudget>& budgets, int seqs,
              int len) {
  GivenLimits given = model.given();
  given.max_num_seqs = seqs;
  given.max_model_len = len;
  const absl::StatusOr<Capacity> plan = model.PlanAt(budgets, given);
  return plan.ok() && plan->fits && plan->full_sequences >= seqs;
}

std::string Bar(double part) {
  return std::string(static_cast<size_t>(std::lround(std::clamp(part, 0.0, 1.0) * kBarWidth)), '#');
}

}  // namespace

std::string ScalingTable(const ModelCapacity& model, const GroupOfSize& group_of_size) {
  std::vector<std::vector<std::string>> rows = {
      {"ranks", "fits", "KV tokens", "sequences", "max_model_len", "KV bytes/token/rank",
       "weights/rank", model.caches_latents() ? "latents on" : "KV heads on"}};
  for (int size = 1; size <= kMaxTriedRanks; size *= 2) {
    const absl::StatusOr<GroupPlan> group = group_of_size(size);
    if (!group.ok()) break;  // cannot be split this far
    const Capacity& plan = group->capacity;
    const bool fits = group->fits();
    const RankCapacity& rank = plan.ranks[plan.binding_rank];
    const int copies = model.KvHeadCopies(size);
    rows.push_back({absl::StrCat(size),
                    fits        ? "yes"
                    : plan.fits ? "host"
                                : MemoryCategoryName(plan.limiting_category),
                    fits ? FormatCount(plan.limits.kv_tokens()) : "-",
                    fits ? FormatCount(plan.full_sequences) : "-",
                    FormatCount(plan.limits.max_model_len),
                    FormatCount(rank.KvBytesPerToken(plan.limits)),
                    FormatBytes(ArenaBytes(rank, MemoryCategory::kWeights)),
                    copies == 1 ? "one rank" : absl::StrCat(copies, " ranks")});
  }
  return TextTable(rows);
}

std::vector<Limits> LengthCurve(const ModelCapacity& model,
                                const std::vector<DeviceBudget>& budgets) {
  std::vector<Limits> curve;
  for (int seqs = 1; seqs <= kMaxSeqs; seqs *= 2) {
    const int len = LargestThatFits(1, model.longest(), [&](int candidate) {
      return HoldsAll(model, budgets, seqs, candidate);
    });
    if (len < 2) break;
    if (!curve.empty() && len == model.longest()) curve.pop_back();
    curve.push_back({.max_num_seqs = seqs, .max_model_len = len});
  }
  return curve;
}

std::vector<Limits> SequencesCurve(const ModelCapacity& model,
                                   const std::vector<DeviceBudget>& budgets) {
  std::vector<Limits> curve;
  for (int len = std::min(kShortest, model.longest());; len = std::min(2 * len, model.longest())) {
    const int seqs = LargestThatFits(
        1, 65536, [&](int candidate) { return HoldsAll(model, budgets, candidate, len); });
    if (seqs == 0) break;
    curve.push_back({.max_num_seqs = seqs, .max_model_len = len});
    if (len == model.longest()) break;
  }
  return curve;
}

std::string CurveText(const std::vector<Limits>& lengths, const std::vector<Limits>& sequences) {
  if (lengths.empty()) return "no sequence fits\n";
  std::vector<std::vector<std::string>> rows = {{"max_num_seqs", "largest max_model_len"}};
  for (const Limits& point : lengths) {
    rows.push_back({FormatCount(point.max_num_seqs), FormatCount(point.max_model_len)});
  }
  std::string text;
  const double most = std::log2(lengths.front().max_model_len);
  size_t at = 0;
  const std::string table = TextTable(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t end = table.find('\n', at);
    absl::StrAppend(&text, table.substr(at, end - at));
    if (i > 0) absl::StrAppend(&text, "  ", Bar(std::log2(lengths[i - 1].max_model_len) / most));
    absl::StrAppend(&text, "\n");
    at = end + 1;
  }
  rows = {{"max_model_len", "most max_num_seqs"}};
  for (const Limits& point : sequences) {
    rows.push_back({FormatCount(point.max_model_len), FormatCount(point.max_num_seqs)});
  }
  return absl::StrCat(text, "\n", TextTable(rows));
}

std::string CompareTable(const std::vector<std::string>& names,
                         const std::vector<Capacity>& plans) {
  std::vector<std::vector<std::string>> rows = {{""}};
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  const auto add = [&](const char* what, const std::function<std::string(const Capacity&)>& tell) {
    std::vector<std::string> row = {what};
    for (const Capacity& plan : plans) row.push_back(tell(plan));
    rows.push_back(std::move(row));
  };
  const auto binding = [](const Capacity& plan) -> const RankCapacity& {
    return plan.ranks[plan.binding_rank];
  };
  add("fits", [](const Capacity& plan) { return plan.fits ? "yes" : "no"; });
  add("ranks", [](const Capacity& plan) { return absl::StrCat(plan.ranks.size()); });
  add("max_num_seqs", [](const Capacity& plan) { return FormatCount(plan.limits.max_num_seqs); });
  add("max_model_len", [](const Capacity& plan) { return FormatCount(plan.limits.max_model_len); });
  add("max_num_batched_tokens",
      [](const Capacity& plan) { return FormatCount(plan.limits.max_num_batched_tokens); });
  add("KV tokens", [](const Capacity& plan) { return FormatCount(plan.limits.kv_tokens()); });
  add("full sequences", [](const Capacity& plan) { return FormatCount(plan.full_sequences); });
  add("KV bytes/token/rank", [&](const Capacity& plan) {
    return FormatCount(binding(plan).KvBytesPerToken(plan.limits));
  });
  add("bottleneck", [](const Capacity& plan) {
    return absl::StrCat("rank ", plan.binding_rank, " ",
                        MemoryCategoryName(plan.limiting_category));
  });
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    add(MemoryCategoryName(static_cast<MemoryCategory>(i)),
        [&](const Capacity& plan) { return FormatBytes(binding(plan).arena_bytes[i]); });
  }
  add("least to start", [&](const Capacity& plan) {
    const int64_t least = binding(plan).required_bytes;
    return least > 0 ? FormatBytes(least) : "-";
  });
  return TextTable(rows);
}

}  // namespace bulkhead
