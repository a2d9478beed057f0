// A rank over the fake NCCL library, with an emulated device.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "comm/nccl/nccl_communicator.h"
#include "kernels/cuda/round_sum.h"
#include "memory/cuda_device.h"
#include "tests/comm/nccl/emulated_nccl.h"
#include "tests/comm/ramp.h"

namespace bulkhead {

inline constexpr CommLimits kLimits{
    .max_sum_elements = 20000, .max_gather_elements = 64, .transport = Transport::kNccl};
inline constexpr CommLimits kRoundedLimits{.max_sum_elements = 20000,
                                           .max_gather_elements = 64,
                                           .transport = Transport::kNccl,
                                           .sum_dtype = DType::kBF16};

class NcclCommunicatorTest : public testing::Test {
 protected:
  void SetUp() override {
    Controls().fault = FakeNcclFault::kNone;
    Controls().fail = false;
    Controls().version = 23007;
  }
  void TearDown() override {
    EXPECT_EQ(Controls().windows, 0);
    EXPECT_EQ(Controls().communicators, 0);
  }
};

inline NcclKernels KernelsOn(CudaDriver& driver) {
  return {.write_late = RampWriter(driver),
          .round = [&driver](const float* from, uint16_t* to,
                             int64_t count) { RoundSum(driver, from, to, count); },
          .widen = [&driver](const uint16_t* from, float* to,
                             int64_t count) { WidenSum(driver, from, to, count); }};
}

// A rank with an emulated device that tries to connect.
struct NcclRankOfTest {
  NcclRankOfTest(Group& group, absl::Duration timeout, int64_t device_bytes = int64_t{64} << 20,
                 bool late = false, const CommLimits& limits = kLimits)
      : driver({.total_bytes = device_bytes, .late = late}),
        device(*CudaDevice::New(driver, 0)),
        ledger(std::make_unique<MemoryLedger>(*device)) {
    rank_driver = &driver;
    ledger->Claim(MemoryCategory::kCommunication,
                  NcclWindow(limits, group.exchange().topology().size).total_bytes);
    comm = ConnectNccl(group, limits, driver, *ledger, timeout, KernelsOn(driver));
  }

  emulator::EmulatedCudaDriver driver;
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<MemoryLedger> ledger;
  absl::StatusOr<std::unique_ptr<Communicator>> comm;
};

}  // namespace bulkhead
