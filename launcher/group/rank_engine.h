// RankEngine: everything that a running rank owns, and what is derived from it for its scheduler,
// its coordinator and the timing of its steps. startup.h makes one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
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

namespace bulkhead {

// A rank's draft model, from the plan on.
struct DraftEngine {
  explicit DraftEngine(ShardPlan split) : plan(std::move(split)) {}

  const ShardPlan plan;
  ModelLimits limits;
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<SpeculativeRunner> steps;  // runs both models
};

// Members are destroyed in reverse order: the device outlives its buffers.
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
  std::unique_ptr<DeviceLock> lock;    // on the GPU or the host, until the seal; may be null
  std::unique_ptr<CudaDriver> driver;  // on a GPU
  int64_t probed_free_bytes = 0;       // the GPU's, before any allocation
  std::unique_ptr<Device> device;
  std::unique_ptr<MemoryLedger> ledger;
  std::unique_ptr<Backend> backend;
  HostBuffer step_figures;  // StepFiguresBytes, on a GPU
  std::unique_ptr<TimedCommunicator> comm;
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<DraftEngine> draft;  // if --speculative-config has a model
  std::unique_ptr<DeviceWatch> watch;  // on a GPU, from the seal on
  absl::Duration load_time;            // for this rank's weights
  int64_t loaded_bytes = 0;            // read by this rank
  StepTimeLimits step_limits;          // as given, or as measured by the warm-up
  std::vector<ClockOffset> clocks;     // by rank, at start

  ReportFacts facts() const;
  StepRunner& steps();  // runs the model and the draft model
};

// The engine's runner with timing; `figures` and `board` (may be null) outlive it.
InstrumentedStepRunner InstrumentedStepRunnerOf(RankEngine& engine, RankFigures& figures,
                                                RankStepStats* board);

// Costs of its sums and gathers, including the draft model's.
CommLimits CommLimitsOf(const RankEngine& engine);

// The scheduler's limits for this engine; `max_num_queued_reqs` as given.
SchedulerLimits SchedulerLimitsOf(const RankEngine& engine, const EngineOptions& options,
                                  int max_num_queued_reqs);

// `engine` outlives the coordinator.
Coordinator::Options CoordinatorOptions(const RankEngine& engine, const SchedulerLimits& limits);

}  // namespace bulkhead
