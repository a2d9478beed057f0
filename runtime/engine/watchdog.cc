#include "runtime/engine/watchdog.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"

namespace bulkhead {
namespace {

constexpr int kTickMillis = 200;
constexpr int64_t kStallNanos = 2'000'000'000;
// The host of a hung rank can name it, and others can name a host whose ranks all hang: a rank that
// knows less gives them time to report.
constexpr absl::Duration kGrace = absl::Seconds(1);
constexpr absl::Duration kMinLate = absl::Seconds(1);
constexpr absl::Duration kStandstill = absl::Seconds(5);
constexpr absl::Duration kQuiet = absl::Minutes(1);  // minimum time between warnings

std::string WaitFor(const Stragglers& stragglers) {
  return stragglers.names.empty() ? "" : absl::StrCat("; the others wait for ", stragglers.names);
}

absl::Status Lost(const std::string& text, const LostRank& rank) {
  return WithLostRank(WithExitCode(absl::UnavailableError(text), ExitCode::kRankLost), rank);
}

absl::Duration GraceFor(const Stragglers& stragglers) {
  if (!stragglers.elsewhere) return absl::ZeroDuration();
  return stragglers.names.empty() ? 2 * kGrace : kGrace;
}

}  // namespace

void WatchdogRules::StepBegins(const internal::StepPlan& plan, int64_t now_ns) {
  const absl::MutexLock lock(&mutex_);
  newest_step_ = plan.seq();
  shapes_[newest_step_ % kMaxSteps] = ShapeOf(plan);
  if (limited_) {
    BH_CHECK(phase_.empty() && newest_step_ > step_seq_ && newest_step_ - step_seq_ < kMaxSteps);
    return;
  }
  limited_ = true;
  phase_.clear();
  TimeStep(newest_step_, now_ns);
}

void WatchdogRules::StepEnds(int64_t now_ns) {
  const absl::MutexLock lock(&mutex_);
  limited_ = step_seq_ < newest_step_;
  if (limited_) TimeStep(step_seq_ + 1, now_ns);
}

void WatchdogRules::TimeStep(uint64_t seq, int64_t now_ns) {
  const StepTimeLimits& limits = step_limits_;
  step_seq_ = seq;
  begin_ns_ = now_ns;
  awaited_since_ns_ = 0;
  const StepShape& shape = shapes_[seq % kMaxSteps];
  const std::optional<StepEstimate>& estimate = limits.EstimateOf(shape);
  estimate_ = estimate.has_value() ? estimate->Of(shape) : absl::InfiniteDuration();
  limit_ = limits.timeout;
  if (estimate.has_value()) limit_ = std::max(limit_, limits.least_estimates * estimate_);
}

void WatchdogRules::PhaseBegins(const std::string& name, absl::Duration limit, int64_t now_ns) {
  const absl::MutexLock lock(&mutex_);
  BH_CHECK(!limited_);
  limited_ = true;
  phase_ = name;
  begin_ns_ = now_ns;
  limit_ = limit;
}

void WatchdogRules::SetPhaseLimit(absl::Duration limit) {
  const absl::MutexLock lock(&mutex_);
  BH_CHECK(limited_ && !phase_.empty());
  limit_ = limit;
}

void WatchdogRules::SetStepLimits(const StepTimeLimits& limits) {
  const absl::MutexLock lock(&mutex_);
  step_limits_ = limits;
}

void WatchdogRules::PhaseEnds() {
  const absl::MutexLock lock(&mutex_);
  limited_ = false;
}

absl::Status WatchdogRules::Tick(int64_t now_ns) {
  liveness_.Beat();
  if (Stalled(now_ns)) liveness_.Rearm();
  const absl::Duration still = IdleFor(now_ns);
  liveness_.ReportIdle(still);
  absl::Status status = liveness_.Check(limits_.silence);
  return status.ok() ? CheckLimit(now_ns, still) : status;
}

// A rank that waits for its next step may be idle for any time.
absl::Duration WatchdogRules::IdleFor(int64_t now_ns) {
  {
    const absl::MutexLock lock(&mutex_);
    if (!limited_ || !phase_.empty()) return absl::ZeroDuration();
  }
  return absl::Nanoseconds(clock_.IdleNanos(now_ns));
}

bool WatchdogRules::Stalled(int64_t now_ns) {
  const int64_t gap_ns = last_tick_ns_ == 0 ? 0 : now_ns - last_tick_ns_;
  last_tick_ns_ = now_ns;
  was_stalled_ = gap_ns > kStallNanos && !was_stalled_;
  if (was_stalled_) {
    const absl::MutexLock lock(&mutex_);
    begin_ns_ += gap_ns;  // the main thread was stopped as well
    awaited_since_ns_ = 0;
  }
  return was_stalled_;
}

absl::Status WatchdogRules::CheckLimit(int64_t now_ns, absl::Duration own_still) {
  const absl::MutexLock lock(&mutex_);
  if (!limited_) return absl::OkStatus();
  return phase_.empty() ? CheckStep(now_ns, own_still)
                        : CheckPhase(absl::Nanoseconds(now_ns - begin_ns_));
}

absl::Status WatchdogRules::CheckPhase(absl::Duration lasted) {
  if (lasted <= limit_) return absl::OkStatus();
  const Stragglers stragglers = liveness_.FindStragglers();
  if (lasted <= limit_ + GraceFor(stragglers)) return absl::OkStatus();
  const std::string text = absl::StrCat("start-up phase '", phase_, "' did not end within ",
                                        absl::FormatDuration(limit_), WaitFor(stragglers),
                                        "; --startup-timeout sets another limit");
  return WithLostRank(WithExitCode(absl::DeadlineExceededError(text), ExitCode::kGroupNotUp),
                      stragglers.lost);
}

absl::Status WatchdogRules::CheckStep(int64_t now_ns, absl::Duration own_still) {
  const absl::Duration lasted = absl::Nanoseconds(now_ns - begin_ns_);
  const absl::Duration late = std::max(kMinLate, kLateEstimates * estimate_);
  if (lasted <= std::min(late, limit_)) return absl::OkStatus();
  const Stragglers stragglers = liveness_.FindStragglers();
  if (lasted > limit_ + GraceFor(stragglers)) {
    const std::string estimate =
        estimate_ == absl::InfiniteDuration()
            ? ""
            : absl::StrCat(" (estimated were ", StepTimeText(estimate_), ")");
    return Lost(absl::StrCat("step ", step_seq_, " did not end within ", StepTimeText(limit_),
                             estimate, WaitFor(stragglers), "; --step-timeout sets another limit"),
                stragglers.lost);
  }
  if (lasted <= late) return absl::OkStatus();
  WarnOfLateStep(now_ns, lasted, stragglers.names);
  if (awaited_since_ns_ == 0 || stragglers.names != awaited_) {
    awaited_ = stragglers.names;
    awaited_since_ns_ = now_ns;
  }
  const bool this_one = stragglers.names.empty();
  // A rank that was waiting for another until just now was idle as well, and may not have woken
  // yet.
  const absl::Duration still = std::min(this_one ? own_still : stragglers.still,
                                        absl::Nanoseconds(now_ns - awaited_since_ns_));
  if (still < kStandstill) return absl::OkStatus();
  return Lost(absl::StrCat("step ", step_seq_, " did not end within ", StepTimeText(lasted),
                           ", and ", this_one ? limits_.name : stragglers.names,
                           this_one ? "" : ", which the others wait for,",
                           " used no CPU time for the last ", StepTimeText(still)),
              this_one ? limits_.rank : stragglers.lost);
}

void WatchdogRules::WarnOfLateStep(int64_t now_ns, absl::Duration lasted, const std::string& who) {
  if (warn_ == nullptr || (warned_ns_ != 0 && absl::Nanoseconds(now_ns - warned_ns_) < kQuiet)) {
    return;
  }
  warned_ns_ = now_ns;
  const StepShape& shape = shapes_[step_seq_ % kMaxSteps];
  warn_(absl::StrCat(
      "step ", step_seq_, " of ", shape.tokens, shape.tokens == 1 ? " token" : " tokens",
      " has taken ", StepTimeText(lasted), "; estimated were ", StepTimeText(estimate_), "; ",
      who.empty() ? "no rank waits for another" : absl::StrCat("the others wait for ", who)));
}

Watchdog::Watchdog(GroupLiveness& liveness, const WatchdogLimits& limits, OnLost on_lost)
    : liveness_(liveness),
      rules_(liveness, limits, clock_,
             limits.warns ? [](const std::string& text) { BH_LOG(kWarning) << text; }
                          : WatchdogRules::Warn()),
      on_lost_(std::move(on_lost)),
      stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  BH_CHECK(stop_fd_ >= 0);
  // Here rather than on the new thread: the others never consider a rank silent that has sent no
  // heartbeat.
  liveness_.Beat();
  thread_ = std::thread([this] { Run(); });
}

Watchdog::~Watchdog() {
  const uint64_t one = 1;
  BH_CHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
  close(stop_fd_);
}

void Watchdog::StepBegins(const internal::StepPlan& plan) {
  rules_.StepBegins(plan, MonotonicNanos());
}
void Watchdog::StepEnds() { rules_.StepEnds(MonotonicNanos()); }
void Watchdog::PhaseBegins(const std::string& name, absl::Duration limit) {
  rules_.PhaseBegins(name, limit, MonotonicNanos());
}
void Watchdog::PhaseEnds() { rules_.PhaseEnds(); }

void Watchdog::Run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // leave signals to other threads
  std::array<pollfd, 2> watched = {pollfd{stop_fd_, POLLIN, 0}, pollfd{liveness_.fd(), POLLIN, 0}};
  while (true) {
    const absl::Status status = rules_.Tick(MonotonicNanos());
    if (!status.ok()) {
      liveness_.Abort(status);
      on_lost_(status);
      return;
    }
    poll(watched.data(), watched.size(), kTickMillis);
    if ((watched[0].revents & POLLIN) != 0) return;
  }
}

}  // namespace bulkhead
