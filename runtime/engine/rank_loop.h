// The loop that every rank runs: get the next plan, submit it, commit the results of the oldest
// step. With depth 2 the device computes a step while the next one is planned and the previous one
// committed.
#pragma once

#include "absl/status/status.h"
#include "comm/control_bus.h"
#include "runtime/engine/coordinator.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// Called when a step is submitted and when it has ended on this rank; a watchdog compares it with
// the step's time limit. Steps end in order; one may begin before the previous one has ended.
class StepWatch {
 public:
  virtual ~StepWatch() = default;
  virtual void StepBegins(const internal::StepPlan& plan) = 0;
  virtual void StepEnds() = 0;
};

// Runs on the rank's main thread until a plan says stop (ok) or the group fails (on rank 0 every
// request has then ended with that status). `bus` is null in a group of one, `coordinator` on every
// rank except 0, `watch` may be null. A gap in the plans' numbers is a bug: INTERNAL with exit code
// 70.
absl::Status RunRank(StepRunner& runner, ControlBus* bus, Coordinator* coordinator,
                     StepWatch* watch);

}  // namespace bulkhead
