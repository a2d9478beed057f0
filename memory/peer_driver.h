// PeerDriver: device memory that kernels of other devices of the host also write to, by their
// processes. Implemented by the CUDA runtime and by the emulator in the tests. Called by the thread
// that opened the rank's CudaDriver (cuda_driver.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

class PeerDriver {
 public:
  virtual ~PeerDriver() = default;
  // Uninitialised, of this rank's device. `bytes`: whole granules of 2 MiB, so that nothing else
  // lies in what is shared. RESOURCE_EXHAUSTED when the device is out of memory.
  virtual absl::StatusOr<std::byte*> AllocateShared(int64_t bytes) = 0;
  // No work of any device may still use it.
  virtual void FreeShared(std::byte* memory) = 0;
  // What another process opens it with. UNAVAILABLE with the cause.
  virtual absl::StatusOr<std::string> HandleOf(std::byte* memory) = 0;
  // The address of another device's memory on this one, until CloseShared. UNAVAILABLE with the
  // cause: there is no access from device to device, for example.
  virtual absl::StatusOr<std::byte*> OpenShared(absl::string_view handle) = 0;
  virtual void CloseShared(std::byte* memory) = 0;
};

// By CUDA IPC. Without CUDA every call fails, UNIMPLEMENTED.
std::unique_ptr<PeerDriver> NewCudaPeerDriver();

}  // namespace bulkhead
