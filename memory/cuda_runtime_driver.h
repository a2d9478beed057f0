// The CUDA devices of this machine, before one is opened (NewCudaRuntimeDriver, cuda_driver.h).
#pragma once

#include "absl/status/statusor.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

// How many devices CUDA shows this process, at least one; CUDA_VISIBLE_DEVICES chooses among them.
// Of MIG instances CUDA shows a process one. UNIMPLEMENTED in a build without CUDA, UNAVAILABLE
// with the cause where there is no driver, or one that is too old, or no device. Creates no
// context.
absl::StatusOr<int> CountCudaDevices();

}  // namespace bulkhead
