// PeriodicThread: calls a function periodically on its own thread, until destroyed.
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
  PeriodicThread(absl::Duration period, First first, std::function<void()> call);
  // Waits for a call in progress to return.
  ~PeriodicThread();
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace bulkhead
