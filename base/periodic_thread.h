// PeriodicThread: calls a function periodically on its own thread, until destroyed. The thread
// takes no signals.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

namespace bulkhead {

class PeriodicThread {
 public:
  enum class First { kNow, kAfterPeriod };  // time of the first call
  // `name`: of the thread, visible to other processes from its start; at most 15 characters.
  PeriodicThread(absl::Duration period, First first, std::function<void()> call,
                 const char* name = "bh-periodic");
  // Waits for a call in progress to return.
  ~PeriodicThread();
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

 private:
  // Not absl's: its waits with a timeout follow the real-time clock, and end early or late when the
  // clock is set.
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_, which the compiler does not know as a lock
  std::thread thread_;
};

}  // namespace bulkhead
