// Watchdog: one thread per rank that says "this process lives", notices when another rank ends or
// falls silent, and holds the rank's main thread to the limits of its start-up phases and steps. It
// never calls MPI and allocates nothing while all is well.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "comm/group.h"
#include "memory/compute_threads.h"
#include "runtime/engine/rank_loop.h"
#include "runtime/engine/step_estimate.h"

namespace bulkhead {

// What a step may take, of those that begin from now on.
struct StepTimeLimits {
  absl::Duration timeout = absl::Seconds(60);  // InfiniteDuration: none
  // A step's time-out is at least so many times its estimate.
  double least_estimates = 0;
  // Without it no step is late before its time-out.
  std::optional<StepEstimate> estimate = std::nullopt;
};

struct WatchdogLimits {
  absl::Duration silence = absl::Seconds(3);  // of another rank
  StepTimeLimits step = {};
  std::string name = {};  // of this rank
  bool warns = false;     // of late steps
};

// What a watchdog decides, tick by tick; no thread and no clock of its own. Thread-safe.
//
// A tick more than 2 s late means that this very process stood still, perhaps with all the others:
// what it has not heard meanwhile says nothing. It then takes everyone as heard just now, once; if
// the next tick is late too it judges as ever. A process that ended is a fact at any time.
//
// A step is late when it takes 10 times its estimate, and a second at least: then the ranks that
// the others wait for are told in a warning, once a minute at most. Where they have used no CPU
// time for 5 s either they hang and the group is lost; ranks that are merely slow have until the
// time-out.
class WatchdogRules {
 public:
  using Warn = std::function<void(const std::string&)>;
  // `clock` and `liveness` outlive this; `warn` may be null.
  WatchdogRules(GroupLiveness& liveness, const WatchdogLimits& limits, StandstillClock& clock,
                Warn warn)
      : liveness_(liveness), clock_(clock), warn_(std::move(warn)), limits_(limits) {}
  // A step that begins while another one lasts has its time from that one's end on.
  void StepBegins(const internal::StepPlan& plan, int64_t now_ns);
  void StepEnds(int64_t now_ns);  // the oldest that lasts
  void PhaseBegins(const std::string& name, absl::Duration limit, int64_t now_ns);
  void PhaseEnds();
  void SetStepLimits(const StepTimeLimits& limits);
  // At least every second. Ok, or why the group is lost: what GroupLiveness::Check found, or
  // DEADLINE_EXCEEDED with ExitCode::kGroupNotUp (a phase) or UNAVAILABLE with kRankLost (a step)
  // and the ranks that lag behind.
  absl::Status Tick(int64_t now_ns);

 private:
  static constexpr int kMostSteps = 4;  // at once

  bool Stalled(int64_t now_ns);
  absl::Duration StillFor(int64_t now_ns);
  absl::Status CheckLimit(int64_t now_ns, absl::Duration own_still);
  absl::Status CheckPhase(absl::Duration lasted);
  absl::Status CheckStep(int64_t now_ns, absl::Duration own_still);
  void WarnOfLateStep(int64_t now_ns, absl::Duration lasted, const std::string& who);
  void TimeStep(uint64_t seq, int64_t now_ns);

  GroupLiveness& liveness_;
  StandstillClock& clock_;
  const Warn warn_;
  WatchdogLimits limits_;  // `step` guarded by mutex_
  bool was_stalled_ = false;
  int64_t last_tick_ns_ = 0;
  std::mutex mutex_;  // guards what follows
  bool limited_ = false;
  std::string phase_;                         // empty: it is a step
  uint64_t step_seq_ = 0;                     // that is timed
  uint64_t newest_step_ = 0;                  // that has begun
  std::array<StepShape, kMostSteps> shapes_;  // of steps that last, by their number
  int64_t begin_ns_ = 0;
  absl::Duration limit_;
  absl::Duration estimate_;  // of the step
  int64_t warned_ns_ = 0;    // last; 0: never
  std::string awaited_;      // who the others wait for in a late step
  int64_t awaited_since_ns_ = 0;
};

class Watchdog final : public StepWatch {
 public:
  // Told why the group is lost: once at most, on the watchdog's thread, after the group was aborted
  // with the same status. May end the process.
  using OnLost = std::function<void(const absl::Status&)>;
  // Starts the thread. `liveness` must outlive this.
  Watchdog(GroupLiveness& liveness, const WatchdogLimits& limits, OnLost on_lost);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  // Ends the thread; `on_lost` is not called after it.
  ~Watchdog() override;

  // On the rank's main thread; a phase begins when the one before has ended.
  void StepBegins(const internal::StepPlan& plan) override;
  void StepEnds(uint64_t seq) override;
  void PhaseBegins(const std::string& name, absl::Duration limit);
  void PhaseEnds();
  void SetStepLimits(const StepTimeLimits& limits) { rules_.SetStepLimits(limits); }

 private:
  void Run();

  GroupLiveness& liveness_;
  StandstillClock clock_;
  WatchdogRules rules_;
  OnLost on_lost_;
  int stop_fd_;  // an eventfd
  std::thread thread_;
};

}  // namespace bulkhead
