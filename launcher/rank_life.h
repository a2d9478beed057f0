// RankLife: how a rank's process lives and ends: the signals it gets, its group, its watchdog, and
// exactly one end, whoever asks for it first.
//
// Signals: SIGUSR1 drains; SIGTERM and SIGINT drain a group of one, a second one ends it at once.
// In a larger group SIGTERM and SIGINT end the streams and the process at once: after them a
// launcher leaves a group a second or two, or none.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "comm/group.h"
#include "launcher/options.h"
#include "launcher/signal_thread.h"
#include "launcher/wire.h"
#include "runtime/engine/coordinator.h"
#include "runtime/engine/rank_loop.h"
#include "runtime/engine/watchdog.h"

namespace bulkhead {

class RankLife {
 public:
  explicit RankLife(const EngineOptions& options);
  RankLife(const RankLife&) = delete;
  RankLife& operator=(const RankLife&) = delete;

  absl::Status Join();
  Group& group() { return *group_; }

  // Told why, once and from any thread, before the process ends out of turn: it ends the streams.
  // Null when there are none left.
  void SetEnding(std::function<void(const absl::Status& why)> ending);
  // Called when a drain is asked for, from a thread of its own; at once if it was asked for
  // already.
  void SetDrain(std::function<void()> drain);

  // The rank loop until its clean stop. On a failure it does not return: the process ends.
  void RunSteps(StepRunner& runner, Coordinator* coordinator);

  // The clean end, or an agreed one: what main should end with. Otherwise like End.
  absl::Status Finish(const absl::Status& status);
  // Ends the process with the code that `why` carries, streams first. Any thread; the first call
  // counts.
  [[noreturn]] void End(const absl::Status& why);

 private:
  void OnSignal(int signal);
  bool alone() const;
  bool SpeaksForGroup(const absl::Status& why) const;

  const EngineOptions& options_;
  std::unique_ptr<Group> group_;
  std::mutex mutex_;
  std::function<void(const absl::Status&)> ending_;  // guarded by mutex_
  std::function<void()> drain_;                      // guarded by mutex_
  bool drain_asked_ = false;                         // guarded by mutex_
  std::once_flag end_once_;
  SignalThread signals_;
  std::unique_ptr<Watchdog> watchdog_;
};

// A rank from start to end: joins the group, does `work`, and ends in good order.
absl::Status LiveAsRank(const EngineOptions& options,
                        const std::function<absl::Status(RankLife&)>& work);

}  // namespace bulkhead
