#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "tests/gpu/shared_memory.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/cuda/peers_under_test.h"

namespace bulkhead {
namespace {

// Before the first test: arrays are made before the devices that read them.
class GpuEnvironment : public testing::Environment {
  void SetUp() override {
    // A kernel that is loaded at its first launch waits for those that run, and a sum that runs on
    // one stream waits for a launch on the other (PeerSumsTest).
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    ShareNewMemory();
  }
};
const testing::Environment* const kEnvironment =
    testing::AddGlobalTestEnvironment(new GpuEnvironment);

}  // namespace

std::vector<std::unique_ptr<CudaDriver>> DevicesUnderTest(bool, bool, int capability_major) {
  absl::StatusOr<std::unique_ptr<CudaDriver>> driver = NewCudaRuntimeDriver(0);
  BH_CHECK(driver.ok());
  std::vector<std::unique_ptr<CudaDriver>> devices;
  if (capability_major != 0 && (*driver)->properties().capability() != 10 * capability_major) {
    return devices;
  }
  devices.push_back(*std::move(driver));
  return devices;
}

PeerDriver& PeersOf(CudaDriver&) {
  static PeerDriver* const peers = NewCudaPeerDriver().release();
  return *peers;
}

}  // namespace bulkhead
