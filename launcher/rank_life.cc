#include "launcher/rank_life.h"

#include <unistd.h>
#include <csignal>

#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/exit_status.h"
#include "memory/exit_code.h"
#include "memory/log.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kSilence = absl::Seconds(3);

// The code of a failure that carries none: the group is lost, or did not come up.
absl::Status WithGroupCode(absl::Status status) {
  if (ExitCodeOf(status) != ExitCode::kBug) return status;
  if (absl::IsUnavailable(status)) return WithExitCode(std::move(status), ExitCode::kRankLost);
  if (absl::IsDeadlineExceeded(status))
    return WithExitCode(std::move(status), ExitCode::kGroupNotUp);
  return status;
}

}  // namespace

RankLife::RankLife(const EngineOptions& options)
    : options_(options),
      signals_({SIGTERM, SIGINT, SIGHUP, SIGUSR1}, [this](int signal) { OnSignal(signal); }) {}

absl::Status RankLife::Join() {
  BH_ASSIGN_OR_RETURN(std::unique_ptr<Group> group, JoinGroup(options_));
  const RankTopology& topology = group->exchange().topology();
  SetLogRank(topology.rank, topology.size);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    group_ = std::move(group);
  }
  watchdog_ = std::make_unique<Watchdog>(
      group_->liveness(), WatchdogLimits{.silence = kSilence, .step = options_.step_timeout},
      [this](const absl::Status& why) { End(WithGroupCode(why)); });
  watchdog_->PhaseBegins("start-up", options_.startup_timeout);
  return MarkAgreed(CheckGroupSize(options_, topology));  // every rank sees the same size
}

void RankLife::SetEnding(std::function<void(const absl::Status&)> ending) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ending_ = std::move(ending);
}

void RankLife::SetDrain(std::function<void()> drain) {
  bool asked = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    drain_ = drain;
    asked = drain_asked_;
  }
  if (asked && drain != nullptr) drain();
}

void RankLife::OnSignal(int signal) {
  std::function<void()> drain;
  bool asked = false;
  bool is_alone = true;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_alone = alone();
    asked = std::exchange(drain_asked_, true);
    drain = drain_;
  }
  if (signal == SIGUSR1) {
    if (drain != nullptr && !asked) drain();
    return;
  }
  if (is_alone && drain != nullptr && !asked) {
    BH_LOG(kInfo) << "draining; a second signal ends at once";
    return drain();
  }
  if (!is_alone) group_->liveness().Ending();
  End(WithExitCode(absl::UnavailableError(
                       absl::StrCat("stopped by signal ", signal, " (", sigabbrev_np(signal), ")")),
                   static_cast<ExitCode>(128 + signal)));
}

void RankLife::RunSteps(StepRunner& runner, Coordinator* coordinator) {
  watchdog_->PhaseEnds();
  ControlBus* bus = group().exchange().topology().size > 1 ? &group().bus() : nullptr;
  const absl::Status status = RunRank(runner, bus, coordinator, watchdog_.get());
  if (!status.ok()) End(WithGroupCode(status));
}

bool RankLife::alone() const {
  return group_ == nullptr || group_->exchange().topology().size == 1;
}

bool RankLife::SpeaksForGroup(const absl::Status& why) const {
  if (alone()) return true;
  const int rank = group_->exchange().topology().rank;
  // One line for the whole group: rank 0's, or where rank 0 is what was lost, its neighbour's.
  return rank == 0 || (rank == 1 && absl::StartsWith(why.message(), "rank 0 "));
}

absl::Status RankLife::Finish(const absl::Status& status) {
  if (!status.ok() && !IsAgreed(status)) End(WithGroupCode(status));
  if (group_ != nullptr) group_->liveness().Ending();
  watchdog_.reset();
  if (group_ != nullptr) group_->Leave(status);
  return status;
}

void RankLife::End(const absl::Status& why) {
  std::call_once(end_once_, [&] {
    if (group_ != nullptr) group_->liveness().Abort(why);
    std::function<void(const absl::Status&)> ending;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending = ending_;
    }
    if (ending != nullptr) ending(why);
    const int code = SpeaksForGroup(why) ? ExitWith(why) : static_cast<int>(ExitCodeOf(why));
    std::fflush(nullptr);
    _exit(code);
  });
  while (true) pause();
}

absl::Status LiveAsRank(const EngineOptions& options,
                        const std::function<absl::Status(RankLife&)>& work) {
  RankLife life(options);
  absl::Status status = life.Join();
  if (status.ok()) status = work(life);
  return life.Finish(status);
}

}  // namespace bulkhead
