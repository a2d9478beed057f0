// HostPressure: the share of the memory planned for clients that rank 0 has resident, read ten
// times a second by a thread of its own. It gives freed memory back to the system (malloc keeps it
// per thread, which after a burst of long prompts can be hundreds of unused megabytes), and decides
// when calls and connections are refused. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/periodic_thread.h"
#include "runtime/service/host_counters.h"

namespace bulkhead {

class HostPressure {
 public:
  // Percent of HostQuotas::total_bytes.
  static constexpr int kTrimHeap = 70;
  static constexpr int kRefuseCalls = 85;        // refuse new calls
  static constexpr int kRefuseConnections = 92;  // refuse connections, and streams unread
  static constexpr int kCloseConnections = 95;   // close those with most unadmitted bytes

  // `total_bytes` 0: resident memory is read, without any consequence. `resident_bytes` is called
  // on the thread.
  HostPressure(int64_t total_bytes, HostCounters* counters,
               std::function<int64_t()> resident_bytes);
  HostPressure(const HostPressure&) = delete;
  HostPressure& operator=(const HostPressure&) = delete;

  // Memory resident now counts as the group's own; growth from here on as its clients'.
  void SetReady();
  // 0 before SetReady.
  int percent() const { return percent_; }
  bool refuses_calls() const { return percent_ >= kRefuseCalls; }
  // The call's memory is free: a trim follows about a second later, no sooner than two seconds
  // after the last one. Cheap.
  void CallEnded() { call_ended_ = true; }
  // One reading, as the thread makes it.
  void Read();

 private:
  void Say(int percent, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Trim(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t total_bytes_;
  HostCounters* const counters_;
  const std::function<int64_t()> resident_bytes_;
  std::atomic<int> percent_{0};
  std::atomic<bool> call_ended_{false};
  absl::Mutex mutex_;                     // held during a reading
  int said_ ABSL_GUARDED_BY(mutex_) = 0;  // the threshold that was logged last
  int reads_since_trim_ ABSL_GUARDED_BY(mutex_) = 0;
  int reads_since_call_ended_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t after_trim_ ABSL_GUARDED_BY(mutex_) = 0;  // what clients held after the last trim
  PeriodicThread thread_;
};

// For a server's process, before it has threads: few heaps, and large blocks outside them, so that
// memory freed by calls goes back to the system.
void KeepHeapSmall();

}  // namespace bulkhead
