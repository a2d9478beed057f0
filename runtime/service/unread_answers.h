// UnreadAnswers: calls that have ended here but whose answers are not sent, because their clients
// do not read. Ends those that take too long. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "runtime/service/error_counts.h"

namespace bulkhead {

class UnreadAnswers {
 public:
  // Minimum time before an unread answer is dropped for its bytes.
  static constexpr std::chrono::seconds kMinTime{5};

  // Answers have `most_time` to be sent. `errors` counts ended ones, as SLOW_READER.
  explicit UnreadAnswers(ErrorCounts* errors, std::chrono::milliseconds most_time,
                         std::chrono::milliseconds least_time = kMinTime);
  ~UnreadAnswers();
  UnreadAnswers(const UnreadAnswers&) = delete;
  UnreadAnswers& operator=(const UnreadAnswers&) = delete;

  // False: there is nothing to drop yet; asked again after the same time.
  using Drop = std::function<bool()>;

  // Before the call is finished. `drop` ends it; it is called on another thread, until it returns
  // true, and may still be running after Remove.
  void Add(const void* call, int64_t bytes, Drop drop);
  // No effect for a call that was not added.
  void Remove(const void* call);
  // Soon ends answers of least_time and older, largest first, until `bytes` are free.
  void MakeRoom(int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  struct Unread {
    const void* call = nullptr;
    int64_t bytes = 0;
    Clock::time_point since;
    Drop drop;
    bool ended = false;
  };
  using List = std::list<Unread>;  // oldest first

  void Loop();
  // Functions that end these calls.
  using Drops = std::vector<std::pair<const void*, Drop>>;  // by call
  Drops TakeOverdueLocked(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Drops TakeLargestLocked(Clock::time_point now, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After `drop` was called.
  void Dropped(const void* call, bool dropped) ABSL_LOCKS_EXCLUDED(mutex_);

  ErrorCounts* const errors_;
  const std::chrono::milliseconds most_time_;
  const std::chrono::milliseconds least_time_;
  absl::Mutex mutex_;
  absl::CondVar wake_;
  List list_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<const void*, List::iterator> by_call_ ABSL_GUARDED_BY(mutex_);
  int64_t wanted_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace bulkhead
