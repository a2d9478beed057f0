// The compute threads of this process, and how long all of them have been idle: distinguishes a
// hung rank from a slow one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>

namespace bulkhead {

// Registers the constructing thread as a compute thread for the lifetime of the object.
class ComputeThread {
 public:
  ComputeThread();
  ComputeThread(const ComputeThread&) = delete;
  ComputeThread& operator=(const ComputeThread&) = delete;
  ~ComputeThread();
  // CPU time of all compute threads in ns; changes whenever one registers or unregisters; 0 if
  // there are none.
  static int64_t AllCpuNanos();
  // True if any of them runs, is runnable, or waits for disk (swapping), or if the state is
  // unknown.
  static bool AnyIsBusy();

 private:
  const pid_t id_;
};

// Monitors the compute threads; used by one thread.
class IdleClock {
 public:
  virtual ~IdleClock() = default;
  // How long no compute thread has used CPU time, been runnable or waited for disk, as observed by
  // the calls so far; 0 if there are none (on a GPU). An interval of more than a second between
  // calls is ignored: the whole process may have been stopped. `now_ns`: monotonic.
  virtual int64_t IdleNanos(int64_t now_ns);

 private:
  int64_t cpu_ns_ = 0;
  int64_t since_ns_ = 0;
  int64_t polled_ns_ = 0;
};

}  // namespace bulkhead
