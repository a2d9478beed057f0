// PeriodicThread: calls a function every so often on a thread of its own, until it is destroyed.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

namespace bulkhead {

class PeriodicThread {
 public:
  enum class First { kNow, kAfterPeriod };  // when the first call is made
  PeriodicThread(absl::Duration period, First first, std::function<void()> call);
  // Returns once a call that is being made has returned.
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
