// The CUDA backend on the devices under test. Arrays may lie in host memory, where a sanitiser
// watches their ends.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "memory/cuda_device.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace bulkhead {

struct CudaUnderTest {
  std::unique_ptr<CudaDriver> driver;
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<Backend> backend;

  explicit CudaUnderTest(std::unique_ptr<CudaDriver> its_driver) : driver(std::move(its_driver)) {
    device = std::move(CudaDevice::New(*driver, 0)).value();
    backend = NewCudaBackend(*device, *driver);
  }
  // On the first of them.
  CudaUnderTest() : CudaUnderTest(std::move(DevicesUnderTest(true, true).front())) {}
};

// `few`: those that find most, for work that takes long.
inline std::vector<CudaUnderTest> AllSchedules(bool few = false) {
  std::vector<CudaUnderTest> all;
  for (std::unique_ptr<CudaDriver>& driver : DevicesUnderTest(few, true)) {
    all.emplace_back(std::move(driver));
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
