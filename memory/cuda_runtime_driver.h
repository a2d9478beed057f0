// The CUDA devices of this machine, before one is opened (NewCudaRuntimeDriver, cuda_driver.h).
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

// What CUDA shows this process, by ordinal, at least one; CUDA_VISIBLE_DEVICES chooses among all.
// Of MIG instances CUDA shows a process one. UNIMPLEMENTED in a build without CUDA, UNAVAILABLE
// with the cause where there is no driver or no device, FAILED_PRECONDITION where there is a GPU
// and a driver that is too old for this build. Makes no context.
absl::StatusOr<std::vector<CudaDeviceIdentity>> ListCudaDevices();

}  // namespace bulkhead
