#include "runtime/engine/rank_loop.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "memory/exit_code.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

absl::Status Bug(const std::string& what) {
  return WithExitCode(absl::InternalError(what), ExitCode::kBug);
}

// Rank 0 asks its coordinator and tells the others; they listen.
absl::StatusOr<Step> NextStep(ControlBus* bus, Coordinator* coordinator) {
  if (coordinator != nullptr) {
    BH_ASSIGN_OR_RETURN(Step step, coordinator->NextStep());
    if (bus != nullptr) BH_RETURN_IF_ERROR(bus->Publish(step.plan.SerializeAsString()));
    return step;
  }
  if (bus == nullptr) return Bug("a rank without a coordinator needs a control bus");
  std::string message;
  BH_RETURN_IF_ERROR(bus->Receive(&message));
  Step step;
  if (!step.plan.ParseFromString(message)) {
    return Bug(absl::StrCat("a step plan of ", message.size(), " bytes does not parse"));
  }
  return step;
}

absl::Status RunSteps(StepRunner& runner, ControlBus* bus, Coordinator* coordinator,
                      StepWatch* watch) {
  for (uint64_t seq = 1;; ++seq) {
    BH_ASSIGN_OR_RETURN(const Step step, NextStep(bus, coordinator));
    if (step.plan.seq() != seq) {
      return Bug(absl::StrCat("step plan ", step.plan.seq(), " came where ", seq, " was due"));
    }
    if (step.plan.stop()) return absl::OkStatus();
    if (watch != nullptr) watch->StepBegins(seq);
    absl::StatusOr<StepResult> result = runner.Run(step);
    if (watch != nullptr) watch->StepEnds(seq);
    if (!result.ok()) return result.status();
    if (coordinator != nullptr) coordinator->Commit(*std::move(result));
  }
}

}  // namespace

absl::Status RunRank(StepRunner& runner, ControlBus* bus, Coordinator* coordinator,
                     StepWatch* watch) {
  absl::Status status = RunSteps(runner, bus, coordinator, watch);
  if (!status.ok() && coordinator != nullptr) coordinator->Fail(status);
  return status;
}

}  // namespace bulkhead
