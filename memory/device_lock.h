// DeviceLock: serialises starts on a device, from the probe of free memory to the seal: two groups
// that measure the same free bytes would both plan to use them. A device is a GPU, or a host whose
// memory CPU ranks share.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace bulkhead {

// The first sticky folder that every user can write to (users cannot delete each other's files);
// else the last one. The same for all users that see these folders.
std::string FirstSharedFolder(absl::Span<const char* const> folders);
// The folder of lock files. /tmp is private to many services and jobs; /run/lock is missing or
// writable by root only on some systems, and in containers it may be read-only.
inline std::string LockFolder() { return FirstSharedFolder({"/run/lock", "/tmp"}); }

class DeviceLock {
 public:
  // Opens the lock of the GPU with this UUID, or of this host: a lock file in `folder`, never
  // deleted, released when its holder exits for any reason. UNAVAILABLE if the file cannot be
  // created.
  static absl::StatusOr<std::unique_ptr<DeviceLock>> OpenGpu(
      absl::string_view uuid, const std::string& folder = LockFolder());
  static absl::StatusOr<std::unique_ptr<DeviceLock>> OpenHost(
      const std::string& folder = LockFolder());
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;
  ~DeviceLock();

  // Equal for two processes of one machine exactly if they contend for the same lock. Among the
  // ranks of a group with equal ids only one takes it.
  std::string FileId() const;
  // Waits for the lock and logs what it waits for. DEADLINE_EXCEEDED (exit code 5) names the
  // holder's pid and the remedy. CANCELLED once `cancelled` (may be empty) is true.
  absl::Status Take(absl::Duration timeout, const std::function<bool()>& cancelled = {});

 private:
  DeviceLock(int fd, std::string device, std::string remedy);
  static absl::StatusOr<std::unique_ptr<DeviceLock>> Open(absl::string_view name,
                                                          const std::string& folder,
                                                          std::string device, std::string remedy);

  const int fd_;
  const std::string device_;  // name in messages
  const std::string remedy_;
};

}  // namespace bulkhead
