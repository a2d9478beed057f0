// NVIDIA's driver and GPUs as shown by the kernel, independent of CUDA.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace bulkhead {

// "535.104.05", from the loaded kernel module; "" if there is none. `root` is for tests.
std::string NvidiaDriverVersion(const std::string& root = "");

// Whether a GPU device file exists (/dev/nvidia0, /dev/nvidia1 ...).
bool HasNvidiaGpu(const std::string& root = "");

// The minimum major version of the driver for programs built with this CUDA (13000 for 13.0).
int MinNvidiaDriver(int cuda_version);

// The error when a program built with `built_cuda` finds an older driver that supports CUDA up to
// `driver_cuda`. FAILED_PRECONDITION with both versions and the remedy if there is a GPU;
// UNAVAILABLE if there is none.
absl::Status OldNvidiaDriver(int driver_cuda, int built_cuda, const std::string& root = "");

}  // namespace bulkhead
