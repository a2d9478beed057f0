#include "base/periodic_thread.h"

#include <sys/prctl.h>

#include <csignal>
#include <utility>

namespace bulkhead {

PeriodicThread::PeriodicThread(absl::Duration period, First first, std::function<void()> call,
                               const char* name) {
  thread_ = std::thread([this, period, first, call = std::move(call), name] {
    prctl(PR_SET_NAME, name);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // leave signals to other threads
    if (first == First::kNow) call();
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_.wait_for(lock, absl::ToChronoNanoseconds(period), [this] { return stopping_; })) {
      lock.unlock();
      call();
      lock.lock();
    }
  });
}

PeriodicThread::~PeriodicThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

}  // namespace bulkhead
