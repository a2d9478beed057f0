#include "tests/kernels/cuda/device_under_test.h"
#include "tests/support/emulator/emulated_device.h"

namespace bulkhead {

std::vector<std::unique_ptr<CudaDriver>> DevicesUnderTest() {
  std::vector<std::unique_ptr<CudaDriver>> devices;
  for (const emulator::Schedule schedule : emulator::kAllSchedules) {
    emulator::DeviceOptions options{.schedule = schedule};
    options.late = devices.size() % 2 == 1;
    devices.push_back(std::make_unique<emulator::EmulatedCudaDriver>(options));
  }
  return devices;
}

}  // namespace bulkhead
