#include "runtime/engine/watchdog.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "memory/check.h"
#include "memory/exit_code.h"

namespace bulkhead {
namespace {

constexpr int kTickMillis = 200;
constexpr int64_t kStallNanos = 2'000'000'000;
// The host that a rank hangs on can name it; the others give it the time to say so.
constexpr absl::Duration kGrace = absl::Seconds(1);

int64_t NowNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

void WatchdogRules::StepBegins(uint64_t seq, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  newest_step_ = seq;
  if (limited_) {
    BH_CHECK(phase_.empty() && seq == step_seq_ + 1);
    return;
  }
  limited_ = true;
  phase_.clear();
  step_seq_ = seq;
  begin_ns_ = now_ns;
  limit_ = limits_.step;
}

void WatchdogRules::StepEnds(int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  limited_ = step_seq_ < newest_step_;
  if (!limited_) return;
  ++step_seq_;
  begin_ns_ = now_ns;
  limit_ = limits_.step;
}

void WatchdogRules::PhaseBegins(const std::string& name, absl::Duration limit, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  BH_CHECK(!limited_);
  limited_ = true;
  phase_ = name;
  begin_ns_ = now_ns;
  limit_ = limit;
}

void WatchdogRules::SetStepLimit(absl::Duration limit) {
  const std::lock_guard lock(mutex_);
  limits_.step = limit;
}

void WatchdogRules::PhaseEnds() {
  const std::lock_guard lock(mutex_);
  limited_ = false;
}

absl::Status WatchdogRules::Tick(int64_t now_ns) {
  liveness_.Beat();
  if (Stalled(now_ns)) liveness_.Rearm();
  absl::Status status = liveness_.Check(limits_.silence);
  return status.ok() ? CheckLimit(now_ns) : status;
}

bool WatchdogRules::Stalled(int64_t now_ns) {
  const int64_t gap_ns = last_tick_ns_ == 0 ? 0 : now_ns - last_tick_ns_;
  last_tick_ns_ = now_ns;
  was_stalled_ = gap_ns > kStallNanos && !was_stalled_;
  if (was_stalled_) {
    const std::lock_guard lock(mutex_);
    begin_ns_ += gap_ns;  // the main thread stood still as well
  }
  return was_stalled_;
}

absl::Status WatchdogRules::CheckLimit(int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (!limited_ || absl::Nanoseconds(now_ns - begin_ns_) <= limit_) return absl::OkStatus();
  const Laggards laggards = liveness_.FindLaggards();
  if (laggards.elsewhere && absl::Nanoseconds(now_ns - begin_ns_) <= limit_ + kGrace) {
    return absl::OkStatus();
  }
  const std::string who =
      laggards.names.empty() ? "" : absl::StrCat("; the others wait for ", laggards.names);
  const std::string limit = absl::FormatDuration(limit_);
  if (!phase_.empty()) {
    return WithExitCode(absl::DeadlineExceededError(absl::StrCat(
                            "start-up phase '", phase_, "' did not end within ", limit, who)),
                        ExitCode::kGroupNotUp);
  }
  return WithExitCode(
      absl::UnavailableError(absl::StrCat("step ", step_seq_, " did not end within ", limit, who)),
      ExitCode::kRankLost);
}

Watchdog::Watchdog(GroupLiveness& liveness, const WatchdogLimits& limits, OnLost on_lost)
    : liveness_(liveness),
      rules_(liveness, limits),
      on_lost_(std::move(on_lost)),
      stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  BH_CHECK(stop_fd_ >= 0);
  // Here rather than on the new thread: a rank that never beat is never silent to the others.
  liveness_.Beat();
  thread_ = std::thread([this] { Run(); });
}

Watchdog::~Watchdog() {
  const uint64_t one = 1;
  BH_CHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
  close(stop_fd_);
}

void Watchdog::StepBegins(uint64_t seq) { rules_.StepBegins(seq, NowNanos()); }
void Watchdog::StepEnds(uint64_t /*seq*/) { rules_.StepEnds(NowNanos()); }
void Watchdog::PhaseBegins(const std::string& name, absl::Duration limit) {
  rules_.PhaseBegins(name, limit, NowNanos());
}
void Watchdog::PhaseEnds() { rules_.PhaseEnds(); }

void Watchdog::Run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are other threads' business
  std::array<pollfd, 2> watched = {pollfd{stop_fd_, POLLIN, 0}, pollfd{liveness_.fd(), POLLIN, 0}};
  while (true) {
    const absl::Status status = rules_.Tick(NowNanos());
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
