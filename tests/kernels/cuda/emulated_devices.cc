#include "tests/kernels/cuda/device_under_test.h"
#include "tests/support/emulator/emulated_device.h"

namespace bulkhead {

std::vector<std::unique_ptr<CudaDriver>> DevicesUnderTest(bool few, bool host_memory_too) {
  std::vector<std::unique_ptr<CudaDriver>> devices;
  for (const emulator::Schedule schedule : emulator::kAllSchedules) {
    using emulator::Schedule;
    const bool finds_less = schedule == Schedule::kDescending || schedule == Schedule::kWarpGreedy;
    if (few && finds_less) continue;
    emulator::DeviceOptions options{.host_memory_too = host_memory_too, .schedule = schedule};
    options.late = devices.size() % 2 == 1;
    devices.push_back(std::make_unique<emulator::EmulatedCudaDriver>(options));
  }
  return devices;
}

}  // namespace bulkhead
