// RankProcess: how a rank's process lives and ends: the signals it gets, its group, its watchdog,
// and exactly one end, whoever asks for it first.
//
// Signals: SIGUSR1 drains; SIGTERM and SIGINT drain a group of one, a second one ends it at once,
// and so does its parent's end. In a larger group SIGTERM and SIGINT end the streams and the
// process at once: after them a launcher leaves a group a second or two, or none.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "comm/group.h"
#include "launcher/flags/options.h"
#include "launcher/signal_thread.h"
#include "launcher/wire.h"
#include "runtime/engine/coordinator.h"
#include "runtime/engine/rank_loop.h"
#include "runtime/engine/watchdog.h"

namespace bulkhead {

// How a rank that serves ends its streams out of turn. Called once, from any thread.
struct StreamsEnd {
  std::function<void(const absl::Status& why)> fail;  // at once
  std::function<void()> flush;  // waits, a bounded time, until the clients have been told
};

class RankProcess {
 public:
  // `parent`: of a rank that serves alone (launcher/group/rank_parent.h); 0: none.
  RankProcess(const EngineOptions& options, pid_t parent);
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  absl::Status Join();
  Group& group() { return *group_; }

  // What is done before the process ends out of turn; none when there are no streams (any more).
  // Waits for a call in progress, so that what the functions use may die afterwards.
  void SetEnding(StreamsEnd ending);
  // Called when a drain is asked for, on a thread of its own; at once if it was asked for already.
  // Waits likewise.
  void SetDrain(std::function<void()> drain);

  // The group is together, and --startup-timeout limits nothing any more.
  void StartUpEnds() { watchdog_->PhaseEnds(); }
  // What a step may take before the group is taken for lost.
  void SetStepLimits(const StepTimeLimits& limits) { watchdog_->SetStepLimits(limits); }
  // The rank loop until its clean stop. On a failure it does not return: the process ends.
  void RunSteps(StepRunner& runner, Coordinator* coordinator);

  // The clean end, or an agreed one: what main should end with. Otherwise like End.
  absl::Status Finish(const absl::Status& status);
  // Ends the process with the code that `why` carries, streams first. Any thread; the first call
  // counts.
  [[noreturn]] void End(const absl::Status& why);

 private:
  // How often an end was asked for. A signal to a process group comes twice, directly and through
  // the parent.
  struct Wishes {
    int terminal = 0, direct = 0, through_parent = 0;
    int count() const { return terminal + std::max(direct, through_parent); }
  };

  void OnSignal(const ReceivedSignal& signal);
  bool Drain();  // whether there was something to drain
  bool SpeaksForGroup(const absl::Status& why) const;

  const EngineOptions& options_;
  const pid_t parent_;
  std::unique_ptr<Group> group_;
  std::atomic<Group*> joined_{nullptr};  // group_, for the other threads
  std::mutex ending_mutex_;
  StreamsEnd ending_;  // guarded by ending_mutex_, held while it is called
  std::mutex drain_mutex_;
  std::function<void()> drain_;  // guarded by drain_mutex_, held while it is called
  bool drain_asked_ = false;     // guarded by drain_mutex_
  Wishes wishes_;                // the signal thread's alone, as the next one
  absl::Time first_signal_ = absl::InfinitePast();  // that drains
  std::once_flag end_once_;
  SignalThread signals_;
  std::unique_ptr<Watchdog> watchdog_;
};

// A rank from start to end: joins the group, does `work`, and ends in good order.
absl::Status RunRankProcess(const EngineOptions& options,
                            const std::function<absl::Status(RankProcess&)>& work,
                            pid_t parent = 0);

}  // namespace bulkhead
