// The CUDA backend on the emulator, once for each order in which threads may run, the queue at once
// and late in turn. Arrays may lie in host memory, where a sanitiser watches their ends.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "memory/check.h"
#include "memory/cuda_device.h"
#include "tests/support/emulator/emulated_device.h"

namespace bulkhead {

struct CudaUnderTest {
  std::unique_ptr<emulator::EmulatedCudaDriver> driver;
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<Backend> backend;

  explicit CudaUnderTest(emulator::Schedule schedule, bool late = false) {
    emulator::DeviceOptions options{.host_memory_too = true, .late = late};
    options.schedule = schedule;
    driver = std::make_unique<emulator::EmulatedCudaDriver>(options);
    device = std::move(CudaDevice::New(*driver, 0)).value();
    backend = NewCudaBackend(*device, *driver);
  }
};

// `few`: the three that find most, for work that takes long.
inline std::vector<CudaUnderTest> AllSchedules(bool few = false) {
  using emulator::Schedule;
  std::vector<CudaUnderTest> all;
  for (const Schedule schedule : emulator::kAllSchedules) {
    const bool finds_less = schedule == Schedule::kDescending || schedule == Schedule::kWarpGreedy;
    if (!few || !finds_less) all.emplace_back(schedule, all.size() % 2 == 1);
  }
  return all;
}

// What `run` makes of a backend: the same bits on every schedule, which it returns.
template <typename Run>
std::vector<float> OnAllSchedules(const Run& run, bool few = false) {
  std::vector<float> first;
  for (CudaUnderTest& cuda : AllSchedules(few)) {
    const std::vector<float> out = run(*cuda.backend);
    if (first.empty()) first = out;
    EXPECT_EQ(first.size(), out.size());
    EXPECT_EQ(std::memcmp(first.data(), out.data(), out.size() * sizeof(float)), 0)
        << "schedules give different bits";
  }
  return first;
}

}  // namespace bulkhead
