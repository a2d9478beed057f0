#include "runtime/engine/rank_loop.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {
namespace {

absl::Status Bug(const std::string& what) {
  return WithExitCode(absl::InternalError(what), ExitCode::kBug);
}

// Rank 0 gets the step from its coordinator and publishes it; the others receive it.
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

// Submits plans to the runner and commits the results. Rank 0's coordinator decides when to collect
// although another step could be in flight: all ranks submit and collect in the same order.
class StepLoop {
 public:
  StepLoop(StepRunner& runner, Coordinator* coordinator, StepWatch* watch)
      : runner_(runner), coordinator_(coordinator), watch_(watch) {}

  absl::Status Run(ControlBus* bus) {
    while (true) {
      if (in_flight() == runner_.depth()) BH_RETURN_IF_ERROR(Collect());
      BH_ASSIGN_OR_RETURN(Step step, NextStep(bus, coordinator_));
      if (step.plan.collect()) {
        BH_RETURN_IF_ERROR(Collect());
        continue;
      }
      const uint64_t seq = step.plan.seq();
      if (seq != submitted_ + 1) {
        return Bug(absl::StrCat("step plan ", seq, " came where ", submitted_ + 1, " was due"));
      }
      if (step.plan.stop()) {
        if (in_flight() == 0) return absl::OkStatus();
        return Bug(absl::StrCat("stopped with ", in_flight(), " steps in flight"));
      }
      if (watch_ != nullptr) watch_->StepBegins(step.plan);
      ++submitted_;
      BH_RETURN_IF_ERROR(runner_.Submit(std::move(step)));
    }
  }

 private:
  int in_flight() const { return static_cast<int>(submitted_ - collected_); }

  absl::Status Collect() {
    if (in_flight() == 0) return Bug("a plan collects with no step in flight");
    absl::StatusOr<StepResult> result = runner_.Collect();
    ++collected_;
    if (watch_ != nullptr) watch_->StepEnds();
    if (!result.ok()) return result.status();
    if (coordinator_ != nullptr) coordinator_->Commit(*std::move(result));
    return absl::OkStatus();
  }

  StepRunner& runner_;
  Coordinator* const coordinator_;
  StepWatch* const watch_;
  uint64_t submitted_ = 0;
  uint64_t collected_ = 0;
};

}  // namespace

absl::Status RunRank(StepRunner& runner, ControlBus* bus, Coordinator* coordinator,
                     StepWatch* watch) {
  absl::Status status = StepLoop(runner, coordinator, watch).Run(bus);
  if (!status.ok() && coordinator != nullptr) coordinator->Fail(status);
  return status;
}

}  // namespace bulkhead
