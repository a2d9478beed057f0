#include "launcher/planning/kv_rule_change.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "launcher/planning/largest_that_fits.h"

namespace bulkhead {
namespace {

constexpr int64_t kMaxBlocks = int64_t{1} << 30;

// Fractions are tried in hundredths.
Attempt Hundredths(const char* flag, int hundredths, const char* meaning, double now) {
  const std::string value = absl::StrFormat("%.2f", hundredths / 100.0);
  return {{flag, value},
          absl::StrCat(flag, " ", value, meaning),
          std::abs(std::log2(hundredths / 100.0 / now))};
}

}  // namespace

std::optional<Attempt> KvRuleChange::Mildest(const FlagList& with) const {
  switch (rule_.kind) {
    case KvRule::Kind::kNone:
      return std::nullopt;
    case KvRule::Kind::kUtilization:
      return MildestUtilization(with);
    case KvRule::Kind::kShareOfFree:
      if (std::optional<Attempt> share = MildestShare(with); share.has_value()) return share;
      return MildestCount(with);
    case KvRule::Kind::kBlocks:
    case KvRule::Kind::kBytes:
      return MildestCount(with);
  }
  return std::nullopt;
}

bool KvRuleChange::Fits(const FlagList& with, const Attempt& attempt) const {
  return trials_.Fits(Joined(with, attempt.flags));
}

// If a fraction of the total leaves too little for something, a larger one may leave enough.
std::optional<Attempt> KvRuleChange::MildestUtilization(const FlagList& with) const {
  const auto at = [&](int hundredths) {
    return Hundredths("--gpu-memory-utilization", hundredths, ", the least that holds a sequence",
                      rule_.fraction);
  };
  const int now = static_cast<int>(std::floor(rule_.fraction * 100 + 1e-9));
  // The smallest value, that is the largest distance from 100.
  const int from_top =
      LargestThatFits(1, 100 - now, [&](int distance) { return Fits(with, at(101 - distance)); });
  if (from_top == 0) return std::nullopt;
  return at(101 - from_top);
}

std::optional<Attempt> KvRuleChange::MildestShare(const FlagList& with) const {
  std::optional<Attempt> mildest;
  const double now = rule_.fraction * 100;
  for (int n = static_cast<int>(std::ceil(now - 1e-9)) - 1; n >= 1 && !mildest; --n) {
    Attempt attempt =
        Hundredths("--cache-max-entry-count", n, ", the largest share that fits", rule_.fraction);
    if (Fits(with, attempt)) mildest = std::move(attempt);
  }
  for (int n = static_cast<int>(std::floor(now + 1e-9)) + 1; n <= 100; ++n) {
    Attempt attempt = Hundredths("--cache-max-entry-count", n,
                                 ", the least share that holds a sequence", rule_.fraction);
    if (mildest.has_value() && mildest->doublings <= attempt.doublings) break;
    if (Fits(with, attempt)) return attempt;
  }
  return mildest;
}

Attempt KvRuleChange::CountOf(int64_t blocks, int64_t block_bytes) const {
  const int64_t asked =
      rule_.kind == KvRule::Kind::kBytes ? rule_.count / block_bytes : rule_.count;
  const double doublings =
      std::abs(std::log2(static_cast<double>(blocks) / static_cast<double>(asked + 1)));
  if (rule_.kind != KvRule::Kind::kBytes) {
    const std::string count = absl::StrCat(blocks);
    return {{"--cache-max-entry-count", count},
            absl::StrCat("--cache-max-entry-count ", count),
            doublings};
  }
  const std::string bytes = absl::StrCat(blocks * block_bytes);
  return {{"--kv-cache-bytes", bytes},
          absl::StrCat("--kv-cache-bytes ", bytes, " (", FormatBytes(blocks * block_bytes), ")"),
          doublings};
}

// For blocks; bytes are converted with the largest block size of all ranks. The minimum is one
// sequence: if its blocks do not fit, no rule does.
std::optional<Attempt> KvRuleChange::MildestCount(const FlagList& with) const {
  Attempt probe{{"--cache-max-entry-count", absl::StrCat(kMaxBlocks)}, "", 0};
  const std::optional<GroupPlan> group = trials_.Plan(Joined(with, probe.flags));
  if (!group.has_value()) return std::nullopt;
  const Capacity& plan = group->capacity;
  int64_t block_bytes = 0;
  for (const RankCapacity& rank : plan.ranks) {
    block_bytes = std::max(block_bytes, rank.kv_block_bytes);
  }
  if (block_bytes == 0) return std::nullopt;
  const int64_t least = plan.limits.LeastBlocks(plan.limits.max_model_len);
  const int64_t asked = rule_.kind == KvRule::Kind::kBytes    ? rule_.count / block_bytes
                        : rule_.kind == KvRule::Kind::kBlocks ? rule_.count
                                                              : kMaxBlocks;
  const int64_t most = LargestThatFits(
      least, kMaxBlocks, [&](int64_t blocks) { return Fits(with, CountOf(blocks, block_bytes)); });
  if (most == 0) return std::nullopt;
  Attempt attempt = CountOf(asked < least ? least : std::min(most, asked), block_bytes);
  if (asked < least) {
    const std::string up_to = CountOf(most, block_bytes).flags[1];
    absl::StrAppend(&attempt.text, ", the least that holds a sequence; up to ", up_to, " fit");
  } else {
    absl::StrAppend(&attempt.text, ", the most that fit");
  }
  if (!Fits(with, attempt)) return std::nullopt;
  return attempt;
}

}  // namespace bulkhead
