// The engine's functions that are available to the service of a group, on rank 0.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/clock.h"
#include "launcher/group/rank_engine.h"
#include "launcher/group/step_stats.h"
#include "runtime/engine/coordinator.h"
#include "runtime/service/engine_control.h"
#include "runtime/service/serving_state.h"

namespace bulkhead {

class GroupControl final : public EngineControl {
 public:
  // All arguments outlive it. `timeout`: the default of a drain.
  GroupControl(Coordinator& coordinator, const RankStepStats& board, ServingState& state,
               const RankEngine& engine, absl::Duration timeout)
      : coordinator_(coordinator),
        board_(board),
        state_(state),
        engine_(engine),
        drain_timeout_(timeout) {}

  v1::LoadInfo Load() override;
  EngineMetrics Metrics() override { return coordinator_.Metrics(); }
  SchedulerLimits Limits() override { return coordinator_.limits(); }
  absl::StatusOr<SchedulerLimits> SetLimits(const v1::SetLimitsRequest& change,
                                            SchedulerLimits* before) override {
    return coordinator_.SetLimits(change, before);
  }
  void BeginDrain(std::optional<absl::Duration> timeout, DrainWaiter ended) override;

 private:
  void AddMemory(v1::LoadInfo* info) const;
  void AddRankSteps(v1::LoadInfo* info) const;

  Coordinator& coordinator_;
  const RankStepStats& board_;
  ServingState& state_;
  const RankEngine& engine_;
  absl::Duration drain_timeout_;
  const int64_t ready_ns_ = MonotonicNanos();
};

}  // namespace bulkhead
