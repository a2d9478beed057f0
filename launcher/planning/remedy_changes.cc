#include "launcher/planning/remedy_changes.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "launcher/flags/changed_args.h"
#include "launcher/planning/kv_rule_change.h"
#include "launcher/planning/largest_that_fits.h"
#include "memory/kv_format_name.h"

namespace bulkhead {
namespace {

constexpr int kMaxTriedRanks = 64;  // considered for a remedy
constexpr int kGpusOfNode = 8;
constexpr int64_t kMiB = int64_t{1} << 20;

double Doublings(int64_t more, int64_t less) {
  return std::log2(static_cast<double>(more + 1) / static_cast<double>(less + 1));
}

// A smaller limit.
class LimitChange final : public Change {
 public:
  // `least`: the smallest useful value.
  LimitChange(const Trials& trials, std::string flag, int now, int least, bool given)
      : trials_(trials), flag_(std::move(flag)), now_(now), least_(least), given_(given) {}

  std::optional<Attempt> Mildest(const FlagList& with) const override {
    const int value = LargestThatFits(least_, now_ - 1, [&](int candidate) {
      return trials_.Fits(Joined(with, At(candidate).flags));
    });
    if (value == 0) return std::nullopt;
    return At(value);
  }

  std::vector<Attempt> Steps() const override {
    std::vector<Attempt> steps;
    for (int value = now_ / 2; value > least_; value /= 2) steps.push_back(At(value));
    if (least_ < now_) steps.push_back(At(least_));
    return steps;
  }

 private:
  Attempt At(int value) const {
    return {{flag_, absl::StrCat(value)},
            absl::StrCat(flag_, " ", value, given_ ? " (given: " : " (without it: ", now_, ")"),
            Doublings(now_, value)};
  }

  const Trials& trials_;
  const std::string flag_;
  const int now_, least_;
  const bool given_;
};

// One of a few values, from mild to drastic.
class ChoiceChange final : public Change {
 public:
  ChoiceChange(const Trials& trials, std::vector<FlagList> choices, const char* what_it_means = "")
      : trials_(trials) {
    for (FlagList& flags : choices) {
      const std::string text = absl::StrCat(absl::StrJoin(flags, " "), what_it_means);
      steps_.push_back({std::move(flags), text, static_cast<double>(steps_.size() + 1)});
    }
  }

  std::optional<Attempt> Mildest(const FlagList& with) const override {
    for (const Attempt& step : steps_) {
      if (trials_.Fits(Joined(with, step.flags))) return step;
    }
    return std::nullopt;
  }
  std::vector<Attempt> Steps() const override { return steps_; }

 private:
  const Trials& trials_;
  std::vector<Attempt> steps_;
};

std::string ListOf(const std::vector<int64_t>& sizes) {
  std::string list;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    absl::StrAppend(&list, rank == 0 ? "" : ",", rank, "=", sizes[rank]);
  }
  return list;
}

// A smaller reserve; on a measured host at least the memory that loading takes.
class ReserveChange final : public Change {
 public:
  ReserveChange(const Trials& trials, const EngineOptions& options, const Capacity& refused)
      : trials_(trials),
        by_rank_(options.reserve.has_value() && !options.reserve->of_rank.empty()) {
    for (const RankCapacity& rank : refused.ranks) {
      reserves_.push_back(rank.budget.reserve_bytes);
      now_ = std::max(now_, rank.budget.reserve_bytes);
      if (rank.budget.host_in_reserve()) least_ = std::max(least_, rank.budget.transient_bytes);
      measured_ = measured_ || (rank.budget.probed && rank.budget.on_cpu());
    }
  }

  std::optional<Attempt> Mildest(const FlagList& with) const override {
    const auto fits = [&](int64_t bytes) { return trials_.Fits(Joined(with, At(bytes).flags)); };
    if (least_ >= now_ || !fits(least_)) return std::nullopt;
    const int64_t most = LargestThatFits(least_ + 1, now_ - 1, fits);
    // Measured memory varies slightly from run to run: adds at most an eighth.
    int64_t unit = kMiB;
    while (measured_ && unit * 16 <= most) unit *= 2;
    const int64_t whole = most / unit * unit;
    return At(whole >= std::max(unit, least_) ? whole : std::max(most, least_));
  }

  std::vector<Attempt> Steps() const override {
    std::vector<Attempt> steps;
    for (int64_t bytes = now_ / 2; bytes > std::max(kMiB, least_); bytes /= 2) {
      steps.push_back(At(bytes));
    }
    if (least_ < now_) steps.push_back(At(least_));
    return steps;
  }

 private:
  Attempt At(int64_t bytes) const {
    std::vector<int64_t> sizes;
    for (const int64_t own : reserves_) sizes.push_back(std::min(own, bytes));
    const std::string value = by_rank_ ? ListOf(sizes) : absl::StrCat(bytes);
    return {{"--reserve", value},
            absl::StrCat("--reserve ", value, " (", FormatBytes(bytes), "; now ", FormatBytes(now_),
                         ")"),
            Doublings(now_, bytes)};
  }

  const Trials& trials_;
  const bool by_rank_;
  std::vector<int64_t> reserves_;
  int64_t now_ = 0;
  int64_t least_ = 0;
  bool measured_ = false;
};

// A group of another size.
class RanksChange final : public Change {
 public:
  RanksChange(const Trials& trials, const Capacity& refused, std::vector<int> sizes)
      : trials_(trials), refused_(refused), sizes_(std::move(sizes)) {}

  std::optional<Attempt> Mildest(const FlagList& with) const override {
    const std::optional<Command> command = trials_.Parse(with);
    if (!command.has_value()) return std::nullopt;
    for (const int size : sizes_) {
      if (!with.empty() && !IsStep(size)) continue;
      Attempt attempt = At(*EngineOf(*command), size);
      if (trials_.Fits(Joined(with, attempt.flags))) return attempt;
    }
    return std::nullopt;
  }

  std::vector<Attempt> Steps() const override {
    std::vector<Attempt> steps;
    const std::optional<Command> command = trials_.Parse({});
    for (const int size : sizes_) {
      if (command.has_value() && IsStep(size)) steps.push_back(At(*EngineOf(*command), size));
    }
    return steps;
  }
  bool monotone() const override { return false; }

 private:
  // Doublings, powers of two, and anything smaller.
  bool IsStep(int size) const {
    const auto now = static_cast<int>(refused_.ranks.size());
    const auto is_power = [](int n) { return (n & (n - 1)) == 0; };
    return size < now || is_power(size) || (size % now == 0 && is_power(size / now));
  }

  Attempt At(const EngineOptions& options, int size) const {
    const auto now = static_cast<int>(refused_.ranks.size());
    Attempt attempt{GroupFlags(options, size),
                    absl::StrCat("a group of ", size, size == 1 ? " rank" : " ranks"),
                    std::abs(Doublings(size, now))};
    if (size > 1) absl::StrAppend(&attempt.text, " (mpirun -n ", size, ")");
    if (attempt.flags.size() > 2) {
      absl::StrAppend(&attempt.text, size > now ? " of which the new ones are like the smallest: "
                                                : " without the smallest: ");
      absl::StrAppend(&attempt.text,
                      absl::StrJoin(attempt.flags.begin() + 2, attempt.flags.end(), " "));
    }
    return attempt;
  }

  const Trials& trials_;
  const Capacity& refused_;
  const std::vector<int> sizes_;
};

// "--kv-cache-dtype", or LMDeploy's name if the command line has that.
std::vector<FlagList> SmallerKvFormats(const Trials& trials, const ModelLimits& formats) {
  const bool policy = HasFlag(trials.command_line(), {"--quant-policy"});
  const bool dtype = HasFlag(trials.command_line(), {"--kv-cache-dtype"});
  const bool tiles = HasFlag(trials.command_line(), {"--attention-dtype"});
  std::vector<FlagList> choices;
  for (const KvFormat smaller : {KvFormat::kBF16, KvFormat::kInt8, KvFormat::kInt4}) {
    if (KvElementBits(smaller) >= KvElementBits(formats.kv_format)) continue;
    FlagList flags;
    if (policy) {
      const bool known = smaller != KvFormat::kBF16;
      flags = {"--quant-policy", known ? absl::StrCat(KvElementBits(smaller)) : "0"};
    }
    if (dtype || !policy || smaller == KvFormat::kBF16) {
      flags.insert(flags.end(), {"--kv-cache-dtype", std::string(KvFormatName(smaller))});
    }
    // Tiles only support bf16.
    if (tiles && smaller != KvFormat::kBF16)
      flags.insert(flags.end(), {"--attention-dtype", "auto"});
    choices.push_back(std::move(flags));
  }
  return choices;
}

std::vector<FlagList> SmallerWeightFormats(const ModelLimits& formats) {
  const int bits = WeightBits(formats.weights.layers);
  std::vector<FlagList> choices;
  if (bits > 16) choices.push_back({"--dtype", "bfloat16"});
  if (bits > 8) choices.push_back({"--weight-dtype", "int8"});
  if (bits > 4) choices.push_back({"--weight-dtype", "int4"});
  return choices;
}

std::vector<FlagList> SmallerBlocks(int tokens) {
  std::vector<FlagList> choices;
  for (int smaller = tokens / 2; smaller >= 16; smaller /= 2) {
    choices.push_back({"--block-size", absl::StrCat(smaller)});
  }
  return choices;
}

int NumHosts(const Capacity& refused) {
  std::set<std::string> hosts;
  for (const RankCapacity& rank : refused.ranks) hosts.insert(rank.budget.host);
  return static_cast<int>(hosts.size());
}

}  // namespace

FlagList Joined(const FlagList& flags, const FlagList& more) {
  FlagList joined = more;
  for (size_t i = 0; i + 1 < flags.size(); i += 2) {
    bool replaced = false;
    for (size_t j = 0; j < more.size(); j += 2) replaced = replaced || more[j] == flags[i];
    if (!replaced) joined.insert(joined.end(), {flags[i], flags[i + 1]});
  }
  std::rotate(joined.begin(), joined.begin() + static_cast<std::ptrdiff_t>(more.size()),
              joined.end());
  return joined;
}

std::optional<Command> Trials::Parse(const FlagList& flags) const {
  if (command_line_.empty()) return std::nullopt;
  absl::StatusOr<Command> command = ParseCommandLine(ChangedArgs(command_line_, flags));
  if (!command.ok() || EngineOf(*command) == nullptr) return std::nullopt;
  return *std::move(command);
}

std::optional<GroupPlan> Trials::Plan(const FlagList& flags) const {
  const std::optional<Command> command = Parse(flags);
  if (!command.has_value()) return std::nullopt;
  absl::StatusOr<GroupPlan> plan = plan_again_(*command);
  if (!plan.ok()) return std::nullopt;
  return *std::move(plan);
}

bool Trials::Fits(const FlagList& flags) const {
  const std::optional<GroupPlan> plan = Plan(flags);
  return plan.has_value() && plan->fits();
}

Attempt HostMemoryChange::At(int64_t bytes) {
  const std::string value = absl::StrCat(bytes);
  return {{"--host-memory", value},
          absl::StrCat("--host-memory ", value, " (", FormatBytes(bytes), "), the least"),
          1};
}

std::optional<Attempt> HostMemoryChange::Mildest(const FlagList& with) const {
  // With almost nothing the quotas are at their minimum.
  const std::optional<GroupPlan> plan = trials_.Plan(Joined(with, At(1).flags));
  if (!plan.has_value() || !plan->host.has_value()) return std::nullopt;
  Attempt attempt = At(EnoughHostMemory(plan->capacity, *plan->host));
  if (!trials_.Fits(Joined(with, attempt.flags))) return std::nullopt;
  return attempt;
}

FlagList GroupFlags(const EngineOptions& options, int size) {
  FlagList flags = {"--tensor-parallel-size", absl::StrCat(size)};
  const auto by_rank = [](const std::optional<RankSizes>& sizes) {
    return sizes.has_value() && !sizes->of_rank.empty();
  };
  const bool caps = by_rank(options.device_memory);
  const bool reserves = by_rank(options.reserve);
  // By memory beyond the reserve: a smaller group keeps those with the most.
  std::vector<int> order;
  for (const auto& [rank, bytes] :
       (caps ? options.device_memory : options.reserve).value_or(RankSizes()).of_rank) {
    order.push_back(rank);
  }
  const auto room = [&](int rank) {
    return (caps ? options.device_memory->of_rank.at(rank) : 0) -
           (reserves ? options.reserve->of_rank.at(rank) : 0);
  };
  if (caps && reserves && options.reserve->of_rank.size() != order.size()) return flags;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return room(a) > room(b); });
  order.resize(std::min<size_t>(order.size(), static_cast<size_t>(size)));
  std::sort(order.begin(), order.end());
  const auto resized = [&](const RankSizes& sizes, bool like_least) {
    std::vector<int64_t> values;
    for (const int rank : order) values.push_back(sizes.of_rank.at(rank));
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    values.resize(size, like_least ? *least : *most);
    return ListOf(values);
  };
  if (caps) flags.insert(flags.end(), {"--device-memory", resized(*options.device_memory, true)});
  if (reserves) flags.insert(flags.end(), {"--reserve", resized(*options.reserve, false)});
  return flags;
}

std::vector<int> GroupSizes(int size, int nodes, bool gpu) {
  int of_node = 1;  // ranks per host, or a multiple
  if (gpu) of_node = nodes > 1 || size > kGpusOfNode ? std::max(1, size / nodes) : kGpusOfNode;
  const int unit = gpu ? of_node : nodes;
  std::vector<int> larger, smaller;
  for (int candidate = 1; candidate <= kMaxTriedRanks; ++candidate) {
    const bool exists = candidate % unit == 0 || (gpu && candidate < unit && unit % candidate == 0);
    if (exists && candidate > size) larger.push_back(candidate);
    if (exists && candidate < size) smaller.insert(smaller.begin(), candidate);
  }
  larger.insert(larger.end(), smaller.begin(), smaller.end());
  return larger;
}

AllChanges ChangesOf(const Trials& trials, const EngineOptions& options, const ModelLimits& formats,
                     const GroupPlan& group) {
  AllChanges all;
  const Capacity& refused = group.capacity;
  const DeviceBudget& first = refused.ranks.front().budget;
  const bool gpu = !first.on_cpu();
  const auto size = static_cast<int>(refused.ranks.size());
  const auto choose = [&](Changes& changes, std::vector<FlagList> choices, const char* means = "") {
    if (choices.empty()) return;
    changes.push_back(std::make_unique<ChoiceChange>(trials, std::move(choices), means));
  };
  if (group.host.has_value() && group.host->given_bytes.has_value()) {
    all.usual.push_back(std::make_unique<HostMemoryChange>(trials));
  }
  if (options.kv_rule.kind != KvRule::Kind::kNone) {
    all.usual.push_back(std::make_unique<KvRuleChange>(trials, options.kv_rule));
  }
  const auto limit = [&](const char* flag, std::optional<int> given, int now, int least) {
    (given.has_value() ? all.usual : all.last)
        .push_back(std::make_unique<LimitChange>(trials, flag, now, least, given.has_value()));
  };
  limit("--max-num-seqs", options.limits.max_num_seqs, refused.limits.max_num_seqs, 1);
  // A sequence of one token cannot generate.
  limit("--max-model-len", options.limits.max_model_len, refused.limits.max_model_len, 2);
  limit("--max-num-batched-tokens", options.limits.max_num_batched_tokens,
        refused.limits.max_num_batched_tokens, 1);
  const std::optional<Command> command = trials.Parse({});
  const ServeOptions* const server = command.has_value() ? ServerOf(*command) : nullptr;
  if (group.host.has_value() && server != nullptr && server->max_num_queued_reqs.has_value()) {
    limit("--max-num-queued-reqs", server->max_num_queued_reqs, *server->max_num_queued_reqs,
          std::min(1, *server->max_num_queued_reqs));
  }
  choose(all.usual, SmallerKvFormats(trials, formats));
  choose(all.usual, SmallerWeightFormats(formats));
  if (options.speculative.by_model()) {
    choose(all.usual, {{"--speculative-config", "null"}}, " (no draft model)");
  }
  all.usual.push_back(std::make_unique<ReserveChange>(trials, options, refused));
  if (!options.tp_shares_auto) choose(all.usual, {{"--tp-shares", "auto"}});
  choose(all.last, SmallerBlocks(options.block_size));
  if (gpu && size > 1 && options.comm != CommOption::kStaged) {
    choose(all.last, {{"--comm", "staged"}}, " (sums through host memory, which is slower)");
  }
  if (first.probed && !gpu) return all;  // ranks of one host share its memory
  std::vector<int> larger = GroupSizes(size, NumHosts(refused), gpu);
  const auto smaller = std::find_if(larger.begin(), larger.end(), [&](int n) { return n < size; });
  all.last.push_back(
      std::make_unique<RanksChange>(trials, refused, std::vector<int>(smaller, larger.end())));
  larger.erase(smaller, larger.end());
  all.usual.push_back(std::make_unique<RanksChange>(trials, refused, std::move(larger)));
  return all;
}

}  // namespace bulkhead
