// RankProcess: a rank's process from start to end: its signals, its group, its watchdog, and a
// single end, whatever requests it first.
//
// Signals: SIGUSR1 drains, before READY by ending the start; SIGTERM and SIGINT drain a group of
// one, a second one ends it at once, and so does its parent's end. In a larger group SIGTERM and
// SIGINT end the streams and the process at once: a launcher allows a group a second or two after
// them, or none.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "comm/group.h"
#include "launcher/flags/options.h"
#include "launcher/signal_thread.h"
#include "launcher/wire.h"
#include "runtime/engine/coordinator.h"
#include "runtime/engine/rank_loop.h"
#include "runtime/engine/watchdog.h"

namespace bulkhead {

// How a serving rank ends its streams on failure. Called once, from any thread.
struct StreamsEnd {
  std::function<void(const absl::Status& why)> fail;  // at once
  std::function<void()> flush;  // waits, for a bounded time, for clients to receive it
};

class RankProcess {
 public:
  // `parent`: pid of a lone rank's parent process (launcher/group/rank_parent.h); 0: none.
  RankProcess(const EngineOptions& options, pid_t parent);
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  // Collective; ends in agreement, also on the options.
  absl::Status Join();
  Group& group() { return *group_; }
  // After Join the group's options: rank 0's override this rank's (launcher/group/group_flags.h).
  const EngineOptions& options() const { return options_; }

  // Called before the process ends early; empty if there are no streams. Waits for a call in
  // progress, so that the functions' captures may be destroyed afterwards.
  void SetEnding(StreamsEnd ending);
  // Called on its own thread when a drain is requested; at once if it already was. Waits for a call
  // in progress.
  void SetDrain(std::function<void()> drain);

  // Until StartIsOver SIGUSR1 to any rank ends the group with code 0: nothing was accepted yet.
  void DrainMayEndStart();
  // Collective: ok on all ranks, or on none. Afterwards SIGUSR1 is a drain of rank 0's.
  absl::Status StartIsOver();
  // The group is up; --startup-timeout no longer applies.
  void StartUpEnds() { watchdog_->PhaseEnds(); }
  // Time limits for steps, after which the group counts as lost.
  void SetStepLimits(const StepTimeLimits& limits) { watchdog_->SetStepLimits(limits); }
  // Runs the rank loop until its clean stop. Does not return on failure: the process ends.
  void RunSteps(StepRunner& runner, Coordinator* coordinator);

  // A clean or agreed end: returns main's final status. Otherwise like End.
  absl::Status Finish(const absl::Status& status);
  // Ends the process with the exit code of `why`, streams first. Any thread; only the first call
  // has an effect.
  [[noreturn]] void End(const absl::Status& why);

 private:
  // Number of end requests. A signal to a process group arrives twice, directly and through the
  // parent.
  struct EndRequests {
    int terminal = 0, direct = 0, through_parent = 0;
    int count() const { return terminal + std::max(direct, through_parent); }
  };

  void OnSignal(const ReceivedSignal& signal);
  void OnLost(const absl::Status& why);
  bool Drain();  // whether there was something to drain
  void EndStart() ABSL_EXCLUSIVE_LOCKS_REQUIRED(drain_mutex_);
  bool ReportsForGroup(const absl::Status& why) const;
  // The exit code, after the last line if it is for this rank to write.
  int Report(const absl::Status& cause) const;

  EngineOptions options_;
  const pid_t parent_;
  std::unique_ptr<Group> group_;
  std::atomic<Group*> joined_{nullptr};  // group_, for other threads
  // Both are held while what they guard is called.
  absl::Mutex ending_mutex_;
  StreamsEnd ending_ ABSL_GUARDED_BY(ending_mutex_);
  absl::Mutex drain_mutex_;
  std::function<void()> drain_ ABSL_GUARDED_BY(drain_mutex_);
  bool drain_asked_ ABSL_GUARDED_BY(drain_mutex_) = false;
  bool drain_ends_start_ ABSL_GUARDED_BY(drain_mutex_) = false;
  std::atomic<bool> end_requested_{false};
  std::atomic<bool> leaving_{false};                // all ranks have reached the end
  EndRequests end_requests_;                        // signal thread only; also first_signal_
  absl::Time first_signal_ = absl::InfinitePast();  // the first signal that drains
  std::once_flag end_once_;
  SignalThread signals_;
  std::unique_ptr<Watchdog> watchdog_;
};

// Whether this rank reports the loss of rank 0: a single rank of rank 0's node, which may know the
// cause, and one rank of each other node, which may be disconnected from that one.
bool ReportsLossOfRank0(const RankTopology& topology);

// Maximum time that this rank keeps running until rank 0 has told its clients `cause`. If rank 0
// itself is lost its end may not be visible from here, and the group ends when this rank does.
absl::Duration CoordinatorWait(const RankTopology& topology, const absl::Status& cause);

// A rank from start to end: joins the group, does `work`, and shuts down in order.
absl::Status RunRankProcess(const EngineOptions& options,
                            const std::function<absl::Status(RankProcess&)>& work,
                            pid_t parent = 0);

}  // namespace bulkhead
