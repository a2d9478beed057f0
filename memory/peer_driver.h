// PeerDriver: device memory that kernels of the host's other devices, in other processes, also
// write to. Implemented by the CUDA runtime and by the emulator in the tests. Called by the thread
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
  // Uninitialised memory of this rank's device. `bytes`: a multiple of 2 MiB, so that nothing else
  // is in what is shared. RESOURCE_EXHAUSTED when the device is out of memory.
  virtual absl::StatusOr<std::byte*> AllocateShared(int64_t bytes) = 0;
  // No work of any device may still use it.
  virtual void FreeShared(std::byte* memory) = 0;
  // The handle that another process opens it with. UNAVAILABLE with the cause.
  virtual absl::StatusOr<std::string> HandleOf(std::byte* memory) = 0;
  // The address on this device of another device's memory, until CloseShared. UNAVAILABLE with the
  // cause, for example if the devices have no peer access.
  virtual absl::StatusOr<std::byte*> OpenShared(absl::string_view handle) = 0;
  virtual void CloseShared(std::byte* memory) = 0;
};

// Uses CUDA IPC. Without CUDA every call returns UNIMPLEMENTED.
std::unique_ptr<PeerDriver> NewCudaPeerDriver();

}  // namespace bulkhead
