#include "launcher/planning/remedies.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "launcher/flags/changed_args.h"
#include "launcher/planning/remedy_changes.h"

namespace bulkhead {
namespace {

constexpr size_t kMaxPairs = 3;

void AddSingles(const Changes& changes, Remedies& remedies) {
  for (const auto& change : changes) {
    std::optional<Attempt> attempt = change->Mildest({});
    if (!attempt.has_value()) continue;
    remedies.list.push_back({std::move(attempt->flags), std::move(attempt->text)});
  }
}

// The combination of two changes with which it fits, minimising the larger deviation from the
// requested values.
std::optional<Remedy> PairOf(const Trials& trials, const Change& first, const Change& second) {
  const std::vector<Attempt> steps = first.Steps();
  if (steps.empty()) return std::nullopt;
  if (first.monotone() && !second.Mildest(steps.back().flags).has_value()) return std::nullopt;
  std::optional<std::pair<Attempt, Attempt>> best;
  const auto doublings = [](const Attempt& a, const Attempt& b) {
    return std::max(a.doublings, b.doublings);
  };
  for (const Attempt& step : steps) {
    std::optional<Attempt> other = second.Mildest(step.flags);
    if (!other.has_value()) continue;
    if (best.has_value() && doublings(step, *other) >= doublings(best->first, best->second)) break;
    best.emplace(step, *std::move(other));
  }
  if (!best.has_value()) return std::nullopt;
  // The first change's step was coarse.
  if (auto milder = first.Mildest(best->second.flags); milder.has_value()) {
    if (trials.Fits(Joined(milder->flags, best->second.flags))) best->first = *std::move(milder);
  }
  Remedy remedy{Joined(best->first.flags, best->second.flags),
                absl::StrCat(best->first.text, " together with ", best->second.text)};
  if (!trials.Fits(remedy.flags)) return std::nullopt;
  return remedy;
}

void AddPairs(const Trials& trials, const AllChanges& changes, Remedies& remedies) {
  std::vector<const Change*> all;
  for (const auto& change : changes.usual) all.push_back(change.get());
  for (const auto& change : changes.last) all.push_back(change.get());
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = i + 1; j < all.size(); ++j) {
      // First: a change without other steps, or a monotone one.
      const bool swap = all[i]->Steps().empty() ||
                        (!all[i]->monotone() && all[j]->monotone() && !all[j]->Steps().empty());
      std::optional<Remedy> pair = PairOf(trials, *all[swap ? j : i], *all[swap ? i : j]);
      if (!pair.has_value()) continue;
      remedies.list.push_back(*std::move(pair));
      if (remedies.list.size() == kMaxPairs) return;
    }
  }
}

// Pairs that make the arenas fit, each with the --host-memory that it needs.
void AddPairsWithHostMemory(const Trials& trials, const EngineOptions& options,
                            const ModelLimits& formats, const GroupPlan& refused,
                            const PlanAgain& plan_again, Remedies& remedies) {
  const HostMemoryChange host(trials);
  const std::vector<std::string> plenty =
      ChangedArgs(options.command_line, host.Steps().back().flags);
  const Trials roomy(plenty, plan_again);
  Remedies pairs;
  AddPairs(roomy, ChangesOf(roomy, options, formats, refused), pairs);
  for (const Remedy& pair : pairs.list) {
    const std::optional<Attempt> least = host.Mildest(pair.flags);
    if (!least.has_value()) continue;
    remedies.list.push_back(
        {Joined(pair.flags, least->flags), absl::StrCat(pair.text, " and ", least->text)});
  }
}

// Why more ranks do not help, when nothing does.
std::string WhyNothingHelps(const Trials& trials, const EngineOptions& options,
                            const Capacity& refused) {
  if (!refused.shortage.has_value()) return kHostHasNoMore;
  const DeviceBudget& first = refused.ranks.front().budget;
  if (first.probed && first.on_cpu()) {
    return "the ranks of this host share its memory, so that more of them do not help; use a host "
           "with more memory, or a smaller model";
  }
  const int size = static_cast<int>(refused.ranks.size());
  std::vector<int> sizes = GroupSizes(size, 1, !first.on_cpu());
  std::reverse(sizes.begin(), sizes.end());
  const Shortage& now = *refused.shortage;
  for (const int more : sizes) {
    if (more < size) continue;
    const std::optional<GroupPlan> plan = trials.Plan(GroupFlags(options, more));
    if (!plan.has_value() || !plan->capacity.shortage.has_value()) continue;
    const Shortage& then = *plan->capacity.shortage;
    return absl::StrCat("no number of ranks helps, because with ", more, " ranks ",
                        MemoryCategoryName(then.category), " still needs ",
                        FormatBytes(then.needed_bytes), " of rank ", then.rank, ", where ",
                        FormatBytes(then.left_bytes), " are left",
                        then.category == now.category && then.needed_bytes >= now.needed_bytes
                            ? "; more ranks do not divide it"
                            : "");
  }
  return absl::StrCat("no number of ranks helps, because no more than ", size, " can be tried");
}

}  // namespace

Remedies FindRemedies(const EngineOptions& options, const ModelLimits& formats,
                      const GroupPlan& refused, const PlanAgain& plan_again) {
  const Trials trials(options.command_line, plan_again);
  const AllChanges changes = ChangesOf(trials, options, formats, refused);
  Remedies remedies;
  AddSingles(changes.usual, remedies);
  if (remedies.list.empty()) AddSingles(changes.last, remedies);
  if (remedies.list.empty()) AddPairs(trials, changes, remedies);
  const bool host_is_given = refused.host.has_value() && refused.host->given_bytes.has_value();
  if (remedies.list.empty() && host_is_given) {
    AddPairsWithHostMemory(trials, options, formats, refused, plan_again, remedies);
  }
  if (remedies.list.empty()) {
    remedies.none_because = WhyNothingHelps(trials, options, refused.capacity);
  }
  return remedies;
}

}  // namespace bulkhead
