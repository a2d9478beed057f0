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
#include "comm/clock_offsets.h"
#include "comm/group.h"
#include "kernels/backend.h"
#include "launcher/flags/options.h"
#include "launcher/group/step_stats.h"
#include "launcher/planning/capacity_report.h"
#include "launcher/planning/model_capacity.h"
#include "launcher/planning/model_source.h"
#include "launcher/wire.h"
#include "memory/capacity.h"
#include "memory/device_lock.h"
#include "memory/device_watch.h"
#include "memory/ledger.h"
#include "runtime/engine/coordinator.h"
#include "runtime/engine/scheduler_limits.h"
#include "runtime/engine/watchdog.h"
#include "runtime/model/model_runner.h"
#include "runtime/model/speculative_runner.h"
#include "runtime/tokenizer/tokenizer.h"
#include "shard/weight_loader.h"

namespace bulkhead {

// A rank's draft model, from the plan on.
struct DraftEngine {
  explicit DraftEngine(ShardPlan split) : plan(std::move(split)) {}

  const ShardPlan plan;
  ModelLimits limits;
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<SpeculativeRunner> steps;  // of both models
};

// Everything a running rank owns. Members are destroyed in reverse order: the device outlives its
// buffers.
struct RankEngine {
  RankTopology topology;
  RankDevice choice;
  ThreadConfig threads;
  ModelSource source;
  std::unique_ptr<Tokenizer> tokenizer;  // rank 0; null if the checkpoint has none
  Capacity capacity;
  std::optional<HostRequest> host_request;  // of a server
  std::optional<HostBudget> host;           // of a server
  std::unique_ptr<ShardPlan> plan;
  ModelLimits limits;
  std::unique_ptr<DeviceLock> lock;    // of the GPU or the host, until the seal; may be null
  std::unique_ptr<CudaDriver> driver;  // on a GPU
  int64_t probed_free_bytes = 0;       // of the GPU, before any allocation
  std::unique_ptr<Device> device;
  std::unique_ptr<MemoryLedger> ledger;
  std::unique_ptr<Backend> backend;
  HostBuffer step_figures;  // StepFiguresBytes, on a GPU
  std::unique_ptr<TimedCommunicator> comm;
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<DraftEngine> draft;  // of --speculative-config with a model
  std::unique_ptr<DeviceWatch> watch;  // on a GPU, from the seal on
  absl::Duration load_time;            // of this rank's weights
  int64_t loaded_bytes = 0;            // read by this rank
  StepTimeLimits step_limits;          // as given, or as measured by the warm-up
  std::vector<ClockOffset> clocks;     // by rank, at start

  ReportFacts facts() const;
  StepRunner& steps();  // of the model, and of the draft model
};

// The engine's runner with timing; `figures` and `board` (may be null) outlive it.
InstrumentedStepRunner InstrumentedStepRunnerOf(RankEngine& engine, RankFigures& figures,
                                                RankStepStats* board);

// The part of --startup-timeout that ranks wait for other groups' starts, of all hosts together:
// which one it was is then told before the time for the whole start has passed.
inline constexpr double kLockShare = 0.8;
// How long communicators may take to connect, `passed` after the start began: a part of what is
// left of --startup-timeout, so that what a library says of it comes before the watchdog's end.
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
// Whether it was a drain that aborted it (RankProcess::DrainMayEndStart).
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

// The scheduler's limits for this engine; `max_num_queued_reqs` as given.
SchedulerLimits SchedulerLimitsOf(const RankEngine& engine, const EngineOptions& options,
                                  int max_num_queued_reqs);

// `engine` outlives the coordinator.
Coordinator::Options CoordinatorOptions(const RankEngine& engine, const SchedulerLimits& limits);

// Rank 0's start-up report: one line per fact.
void LogReport(const RankEngine& engine);

}  // namespace bulkhead
