// The threads of this process that compute, and how long all of them have stood still: what tells a
// rank that hangs from one that is slow.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>

namespace bulkhead {

// The thread that makes it counts as one that computes, for as long as this lives.
class ComputeThread {
 public:
  ComputeThread();
  ComputeThread(const ComputeThread&) = delete;
  ComputeThread& operator=(const ComputeThread&) = delete;
  ~ComputeThread();
  // Of all compute threads together: CPU time used so far, in ns, which changes whenever one joins
  // or leaves; 0 while there are none.
  static int64_t AllCpuNanos();
  // Whether one of them runs, waits for a core, or waits for a disk (swapping); true, too, where
  // the system does not say.
  static bool AnyIsBusy();

 private:
  const pid_t id_;
};

// Watches the compute threads; for one thread.
class StandstillClock {
 public:
  virtual ~StandstillClock() = default;
  // For how long no compute thread has used CPU time, been ready to run or waited for a disk, as
  // far as the calls so far have seen; 0 where none computes (on a GPU). Calls more than a second
  // apart see nothing: the whole process may have been stopped. `now_ns`: monotonic.
  virtual int64_t StillNanos(int64_t now_ns);

 private:
  int64_t cpu_ns_ = 0;
  int64_t since_ns_ = 0;
  int64_t looked_ns_ = 0;
};

}  // namespace bulkhead
