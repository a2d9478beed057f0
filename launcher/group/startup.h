// A rank's start up to a sealed engine, in phases that the whole group ends together: either all
// ranks continue, or all fail with the same status, exit code and named rank.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/exit_code.h"
#include "comm/group.h"
#include "launcher/flags/options.h"
#include "launcher/group/rank_engine.h"
#include "launcher/planning/capacity_report.h"

namespace bulkhead {

// The part of --startup-timeout that ranks wait for other groups' starts, on all hosts together:
// leaves time to report which one it was before the whole timeout has passed.
inline constexpr double kLockShare = 0.8;
// How long communicators may take to connect, `passed` after the start began: a part of the
// remaining --startup-timeout, so that a library's error comes before the watchdog ends the rank.
inline absl::Duration ConnectTimeout(absl::Duration startup_timeout, absl::Duration passed) {
  return 0.8 * std::max(absl::ZeroDuration(), startup_timeout - passed);
}

// Runs one start-up phase: `work` on this rank, then the group's agreement.
using Phase = std::function<absl::Status()>;
inline absl::Status RunPhase(GroupExchange& exchange, absl::string_view name,
                             absl::Duration timeout, const Phase& work) {
  return Agree(exchange, name, work(), timeout);
}

// For a rank's own waits: whether the group has been aborted or lost.
inline std::function<bool()> IsLost(Group& group) {
  return [&group] { return !group.liveness().Check(absl::InfiniteDuration()).ok(); };
}
// Whether a drain aborted it (RankProcess::DrainMayEndStart).
inline bool IsDrained(Group& group) {
  const absl::Status said = group.liveness().Check(absl::InfiniteDuration());
  return !said.ok() && ExitCodeOf(said) == ExitCode::kOk;
}

// Collective: every rank's budget, so that every rank can plan for all.
absl::StatusOr<std::vector<DeviceBudget>> GatherBudgets(GroupExchange& exchange,
                                                        absl::Duration timeout,
                                                        const DeviceBudget& mine);

// Refuses a plan that does not fit: rank 0 reports why, with remedies found by `plan_again`; every
// rank returns the same. `why`: replaces the plan's own reason.
absl::Status RefuseCapacity(const EngineOptions& options, const PlanAgain& plan_again,
                            const RankEngine& engine, const std::optional<std::string>& report,
                            absl::Status why = absl::OkStatus());

// Collective. Returns with the ledger sealed. `options`: the group's (RankProcess::options).
// `server` is null if nothing is served; a refusal for lack of memory is also written to its
// report. `before_memory` (may be null) runs as a separate
// phase once the limits are known, before anything is allocated or loaded: the place to bind a
// listener.
absl::StatusOr<std::unique_ptr<RankEngine>> StartEngine(
    const EngineOptions& options, Group& group, const ServeOptions* server,
    const std::function<absl::Status(const RankEngine&)>& before_memory);

// Rank 0's start-up report: one line per fact.
void LogReport(const RankEngine& engine);

}  // namespace bulkhead
