// The loop that every rank runs: get the next plan, submit it, commit what the oldest step drew. A
// runner of depth 2 computes a step while the next one is planned and the one before is committed.
#pragma once

#include "absl/status/status.h"
#include "comm/control_bus.h"
#include "runtime/engine/coordinator.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// Told when a step is submitted and when it has ended on this rank; a watchdog holds it against the
// step's time limit. Steps end in order, and one may begin before the one before it has ended.
class StepWatch {
 public:
  virtual ~StepWatch() = default;
  virtual void StepBegins(const internal::StepPlan& plan) = 0;
  virtual void StepEnds(uint64_t seq) = 0;
};

// Runs on the rank's main thread until a plan says stop (ok) or the group fails (on rank 0 every
// request has been ended with that status by then). `bus` is null in a group of one, `coordinator`
// on every rank but 0, `watch` may be null. A gap in the plans' numbers is a bug: INTERNAL with
// exit code 70.
absl::Status RunRank(StepRunner& runner, ControlBus* bus, Coordinator* coordinator,
                     StepWatch* watch);

}  // namespace bulkhead
