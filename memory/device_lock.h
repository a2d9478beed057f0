// DeviceLock: from the probe of a GPU's free memory to the seal, one group at a time starts on it:
// two that measure the same free bytes would both plan to take them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace bulkhead {

class DeviceLock {
 public:
  // Waits for the lock of the device with this UUID: a file in `folder` that is locked, never
  // deleted, and free again when its holder ends, however it ends. Of the ranks of a group that
  // share a GPU one alone takes it. DEADLINE_EXCEEDED (exit code 5) names the holder's pid and the
  // remedy; UNAVAILABLE where no such file can be made.
  static absl::StatusOr<std::unique_ptr<DeviceLock>> Acquire(absl::string_view uuid,
                                                             absl::Duration timeout,
                                                             const std::string& folder = "/tmp");
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;
  ~DeviceLock();

 private:
  explicit DeviceLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace bulkhead
