// DeviceWatch: whether a GPU still has free what it had when the ledger was sealed. We take nothing
// after that, so whatever is missing was taken by somebody else, or by a library behind our back;
// it is logged with the names of the processes on the GPU, and its figures are exported.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/periodic_thread.h"

namespace bulkhead {

struct DeviceWatchReading {
  int64_t free_bytes = 0;          // at the last look
  int64_t sealed_free_bytes = 0;   // when the watch began
  int64_t least_free_bytes = 0;    // since then
  int64_t failed_looks_total = 0;  // the device did not say
};

class DeviceWatch {
 public:
  struct Options {
    std::string device;                                   // as messages call it
    std::function<absl::StatusOr<int64_t>()> free_bytes;  // called by the watch's thread
    std::function<std::string()> others;                  // who else is on it, for messages
    absl::Duration period = absl::Seconds(10);
  };
  // The ledger was sealed with so much free.
  DeviceWatch(Options options, int64_t sealed_free_bytes);
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Any thread.
  DeviceWatchReading reading() const;
  // One look now, as the thread does every `period`: "" when all is as it was at the last look,
  // else the line that it logs. One thread.
  std::string Look();

 private:
  const Options options_;
  mutable std::mutex mutex_;
  DeviceWatchReading reading_;            // guarded by mutex_
  std::optional<PeriodicThread> thread_;  // none when the period is infinite
};

}  // namespace bulkhead
