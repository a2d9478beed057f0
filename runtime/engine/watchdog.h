// Watchdog: one thread per rank that sends heartbeats, detects ranks that have ended or gone
// silent, and enforces time limits on the rank's start-up phases and steps. It never calls MPI and
// does not allocate while all is well.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/lost_rank.h"
#include "comm/group.h"
#include "memory/compute_threads.h"
#include "runtime/engine/rank_loop.h"
#include "runtime/engine/step_estimate.h"

namespace bulkhead {

inline constexpr int kLateEstimates = 10;  // a step is late when it takes this many estimates

// Time limits for steps that begin from now on.
struct StepTimeLimits {
  absl::Duration timeout = absl::Seconds(60);  // InfiniteDuration: none
  // A step's timeout is at least this many times its estimate.
  double least_estimates = 0;
  // Without it no step counts as late before its timeout.
  std::optional<StepEstimate> estimate = std::nullopt;
  std::optional<StepEstimate> draft_estimate = std::nullopt;  // for the draft model's steps

  const std::optional<StepEstimate>& EstimateOf(const StepShape& shape) const {
    return shape.draft ? draft_estimate : estimate;
  }
};

struct WatchdogLimits {
  absl::Duration silence = absl::Seconds(3);  // maximum silence of another rank
  StepTimeLimits step = {};
  std::string name = {};  // this rank's name
  LostRank rank = {};     // this one
  bool warns = false;     // log late steps
};

// The decisions of a watchdog, tick by tick, without a thread or clock. Thread-safe.
//
// A tick more than 2 s late means that this process itself was stopped, perhaps with all others:
// missed heartbeats mean nothing. All ranks are then considered heard just now, once; if the next
// tick is also late, they are judged as usual. A process that ended is always reported.
//
// A step is late after 10 times its estimate, and at least one second: a warning then names the
// stragglers, at most once a minute. If they have used no CPU time for 5 s they hang and the group
// is lost; ranks that are merely slow have until the timeout.
class WatchdogRules {
 public:
  using Warn = std::function<void(const std::string&)>;
  // `clock` and `liveness` outlive this; `warn` may be null.
  WatchdogRules(GroupLiveness& liveness, const WatchdogLimits& limits, IdleClock& clock, Warn warn)
      : liveness_(liveness),
        clock_(clock),
        warn_(std::move(warn)),
        limits_(limits),
        step_limits_(limits.step) {}
  // A step that begins while another one runs is timed from that one's end.
  void StepBegins(const internal::StepPlan& plan, int64_t now_ns);
  void StepEnds(int64_t now_ns);  // the oldest running step
  void PhaseBegins(const std::string& name, absl::Duration limit, int64_t now_ns);
  // The limit of the running phase, from its beginning.
  void SetPhaseLimit(absl::Duration limit);
  void PhaseEnds();
  void SetStepLimits(const StepTimeLimits& limits);
  // At least once per second. Ok, or why the group is lost: the status of GroupLiveness::Check, or
  // DEADLINE_EXCEEDED with ExitCode::kGroupNotUp (a phase) or UNAVAILABLE with kRankLost (a step)
  // and the stragglers.
  absl::Status Tick(int64_t now_ns);

 private:
  static constexpr int kMaxSteps = 4;  // concurrently

  bool Stalled(int64_t now_ns);
  absl::Duration IdleFor(int64_t now_ns);
  absl::Status CheckLimit(int64_t now_ns, absl::Duration own_still);
  absl::Status CheckPhase(absl::Duration lasted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckStep(int64_t now_ns, absl::Duration own_still)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WarnOfLateStep(int64_t now_ns, absl::Duration lasted, const std::string& who)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TimeStep(uint64_t seq, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  GroupLiveness& liveness_;
  IdleClock& clock_;
  const Warn warn_;
  const WatchdogLimits limits_;  // `step` is superseded by step_limits_
  bool was_stalled_ = false;     // the next two: Tick's thread only
  int64_t last_tick_ns_ = 0;
  absl::Mutex mutex_;
  StepTimeLimits step_limits_ ABSL_GUARDED_BY(mutex_);
  bool limited_ ABSL_GUARDED_BY(mutex_) = false;
  std::string phase_ ABSL_GUARDED_BY(mutex_);         // empty: in a step
  uint64_t step_seq_ ABSL_GUARDED_BY(mutex_) = 0;     // the step being timed
  uint64_t newest_step_ ABSL_GUARDED_BY(mutex_) = 0;  // the last one begun
  // Shapes of running steps, by number.
  std::array<StepShape, kMaxSteps> shapes_ ABSL_GUARDED_BY(mutex_);
  int64_t begin_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration limit_ ABSL_GUARDED_BY(mutex_);
  absl::Duration estimate_ ABSL_GUARDED_BY(mutex_);  // of the step
  int64_t warned_ns_ ABSL_GUARDED_BY(mutex_) = 0;    // last warning; 0: never
  std::string awaited_ ABSL_GUARDED_BY(mutex_);      // the stragglers of a late step
  int64_t awaited_since_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

class Watchdog final : public StepWatch {
 public:
  // Called with the reason why the group is lost: at most once, on the watchdog's thread, after the
  // group was aborted with the same status. May end the process.
  using OnLost = std::function<void(const absl::Status&)>;
  // Starts the thread. `liveness` must outlive this.
  Watchdog(GroupLiveness& liveness, const WatchdogLimits& limits, OnLost on_lost);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  // Ends the thread; `on_lost` is not called afterwards.
  ~Watchdog() override;

  // On the rank's main thread; a phase begins when the previous one has ended.
  void StepBegins(const internal::StepPlan& plan) override;
  void StepEnds() override;
  void PhaseBegins(const std::string& name, absl::Duration limit);
  void SetPhaseLimit(absl::Duration limit) { rules_.SetPhaseLimit(limit); }
  void PhaseEnds();
  void SetStepLimits(const StepTimeLimits& limits) { rules_.SetStepLimits(limits); }

 private:
  void Run();

  GroupLiveness& liveness_;
  IdleClock clock_;
  WatchdogRules rules_;
  OnLost on_lost_;
  int stop_fd_;  // an eventfd
  std::thread thread_;
};

}  // namespace bulkhead
