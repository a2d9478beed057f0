// Enumerates the CUDA devices of this machine before one is opened (NewCudaRuntimeDriver,
// cuda_driver.h).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

struct CudaDeviceIdentity {
  std::string name;        // "NVIDIA H200"
  std::string uuid;        // "GPU-..." or "MIG-..."
  std::string pci_bus_id;  // "0000:65:00.0"
};

// The devices visible to this process, by ordinal, at least one; CUDA_VISIBLE_DEVICES selects among
// all. CUDA shows at most one MIG instance per process. UNIMPLEMENTED in a build without CUDA,
// UNAVAILABLE with the cause if there is no driver or no device, FAILED_PRECONDITION if the driver
// is too old for this build. Creates no context.
absl::StatusOr<std::vector<CudaDeviceIdentity>> ListCudaDevices();

}  // namespace bulkhead
