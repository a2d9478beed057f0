// Watchdog: one thread per rank that says "this process lives", notices when another rank ends or
// falls silent, and holds the rank's main thread to the limits of its start-up phases and steps. It
// never calls MPI and allocates nothing while all is well.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "comm/group.h"
#include "runtime/engine/rank_loop.h"

namespace bulkhead {

struct WatchdogLimits {
  absl::Duration silence = absl::Seconds(3);  // of another rank
  absl::Duration step = absl::Seconds(60);    // InfiniteDuration: none
};

// What a watchdog decides, tick by tick; no thread and no clock of its own. Thread-safe.
//
// A tick more than 2 s late means that this very process stood still, perhaps with all the others:
// what it has not heard meanwhile says nothing. It then takes everyone as heard just now, once; if
// the next tick is late too it judges as ever. A process that ended is a fact at any time.
class WatchdogRules {
 public:
  WatchdogRules(GroupLiveness& liveness, const WatchdogLimits& limits)
      : liveness_(liveness), limits_(limits) {}
  // A step that begins while another one lasts has its time from that one's end on.
  void StepBegins(uint64_t seq, int64_t now_ns);
  void StepEnds(int64_t now_ns);  // the oldest that lasts
  void PhaseBegins(const std::string& name, absl::Duration limit, int64_t now_ns);
  void PhaseEnds();
  void SetStepLimit(absl::Duration limit);  // of steps that begin from now on
  // At least every second. Ok, or why the group is lost: what GroupLiveness::Check found, or
  // DEADLINE_EXCEEDED with ExitCode::kGroupNotUp (a phase) or UNAVAILABLE with kRankLost (a step)
  // and the ranks that lag behind.
  absl::Status Tick(int64_t now_ns);

 private:
  bool Stalled(int64_t now_ns);
  absl::Status CheckLimit(int64_t now_ns);

  GroupLiveness& liveness_;
  WatchdogLimits limits_;  // `step` guarded by mutex_
  bool was_stalled_ = false;
  int64_t last_tick_ns_ = 0;
  std::mutex mutex_;  // guards what follows
  bool limited_ = false;
  std::string phase_;         // empty: it is a step
  uint64_t step_seq_ = 0;     // that is timed
  uint64_t newest_step_ = 0;  // that has begun
  int64_t begin_ns_ = 0;
  absl::Duration limit_;
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
  void StepBegins(uint64_t seq) override;
  void StepEnds(uint64_t seq) override;
  void PhaseBegins(const std::string& name, absl::Duration limit);
  void PhaseEnds();
  void SetStepLimit(absl::Duration limit) { rules_.SetStepLimit(limit); }

 private:
  void Run();

  GroupLiveness& liveness_;
  WatchdogRules rules_;
  OnLost on_lost_;
  int stop_fd_;  // an eventfd
  std::thread thread_;
};

}  // namespace bulkhead
