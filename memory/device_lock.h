// DeviceLock: from the probe of a device's free memory to the seal, one group at a time starts on
// it: two that measure the same free bytes would both plan to take them. A device is a GPU, or a
// host whose memory CPU ranks share.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace bulkhead {

class DeviceLock {
 public:
  // Opens the lock of the GPU with this UUID, or of this host: a file in `folder` that is locked,
  // never deleted, and free again when its holder ends, however it ends. UNAVAILABLE where no such
  // file can be made.
  static absl::StatusOr<std::unique_ptr<DeviceLock>> OpenGpu(absl::string_view uuid,
                                                             const std::string& folder = "/tmp");
  static absl::StatusOr<std::unique_ptr<DeviceLock>> OpenHost(const std::string& folder = "/tmp");
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;
  ~DeviceLock();

  // Equal for two processes of one machine exactly when they would wait for each other. Of the
  // ranks of a group with the same, one alone takes it.
  std::string FileId() const;
  // Waits for it; says what it waits for. DEADLINE_EXCEEDED (exit code 5) names the holder's pid
  // and the remedy.
  absl::Status Take(absl::Duration timeout);

 private:
  DeviceLock(int fd, std::string device, std::string remedy);
  static absl::StatusOr<std::unique_ptr<DeviceLock>> Open(absl::string_view name,
                                                          const std::string& folder,
                                                          std::string device, std::string remedy);

  const int fd_;
  const std::string device_;  // as messages call it
  const std::string remedy_;
};

}  // namespace bulkhead
