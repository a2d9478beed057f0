// NVIDIA's driver and GPUs as the kernel shows them, whether CUDA opens them or not.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace bulkhead {

// "535.104.05", as the loaded kernel module says it; "" where there is none. `root` is for tests.
std::string NvidiaDriverVersion(const std::string& root = "");

// Whether there is a device file of a GPU (/dev/nvidia0, /dev/nvidia1 ...).
bool HasNvidiaGpu(const std::string& root = "");

// The oldest driver for programs built with this CUDA (13000 for 13.0): its major version.
int LeastNvidiaDriver(int cuda_version);

// Why a program built with `built_cuda` has no device where the driver knows CUDA up to
// `driver_cuda`, which is older. FAILED_PRECONDITION names both versions and the remedy where there
// is a GPU; UNAVAILABLE where there is none, so that nothing is missed.
absl::Status OldNvidiaDriver(int driver_cuda, int built_cuda, const std::string& root = "");

}  // namespace bulkhead
