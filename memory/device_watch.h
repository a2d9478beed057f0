// DeviceWatch: monitors whether a GPU's free memory shrinks after the ledger was sealed. We
// allocate nothing after that, so anything missing was allocated by another process or by a library
// in this one; it is logged with the processes on the GPU, and exported.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/periodic_thread.h"

namespace bulkhead {

struct DeviceWatchReading {
  int64_t free_bytes = 0;          // last observed
  int64_t sealed_free_bytes = 0;   // when sealed
  int64_t least_free_bytes = 0;    // since then
  int64_t failed_looks_total = 0;  // failed queries
};

class DeviceWatch {
 public:
  struct Options {
    std::string device;                                   // name in messages
    std::function<absl::StatusOr<int64_t>()> free_bytes;  // called by the watch's thread
    std::function<std::string()> others;                  // other processes on the GPU, for
                                                          // messages
    absl::Duration period = absl::Seconds(10);
  };
  // `sealed_free_bytes`: free memory when the ledger was sealed.
  DeviceWatch(Options options, int64_t sealed_free_bytes);
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Any thread.
  DeviceWatchReading reading() const;
  // Checks now, as the thread does every `period`: returns "" if unchanged since the last check,
  // else the line to log. One thread.
  std::string Look();

 private:
  const Options options_;
  mutable absl::Mutex mutex_;
  DeviceWatchReading reading_ ABSL_GUARDED_BY(mutex_);
  std::optional<PeriodicThread> thread_;  // none when the period is infinite
};

}  // namespace bulkhead
