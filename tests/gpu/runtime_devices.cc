#include <utility>

#include "base/check.h"
#include "tests/gpu/shared_memory.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/cuda/peers_under_test.h"

namespace bulkhead {

std::vector<std::unique_ptr<CudaDriver>> DevicesUnderTest(bool, bool host_memory_too) {
  absl::StatusOr<std::unique_ptr<CudaDriver>> driver = NewCudaRuntimeDriver(0);
  BH_CHECK(driver.ok());
  if (host_memory_too) ShareNewMemory();
  std::vector<std::unique_ptr<CudaDriver>> devices;
  devices.push_back(*std::move(driver));
  return devices;
}

PeerDriver& PeersOf(CudaDriver&) {
  static PeerDriver* const peers = NewCudaPeerDriver().release();
  return *peers;
}

}  // namespace bulkhead
