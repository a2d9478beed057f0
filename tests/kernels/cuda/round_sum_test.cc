#include "kernels/cuda/round_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "memory/bf16.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace bulkhead {
namespace {

TEST(RoundSumTest, RoundsToNearestEvenAndWidensNoMoreThanTheSum) {
  constexpr int64_t kBytes = int64_t{64} << 10;
  constexpr int64_t kMost = 5000;
  std::mt19937 random(1);
  std::vector<float> x(kMost);
  for (float& value : x) value = F32OfBits(static_cast<uint32_t>(random()) & 0xBFFFFFFFU);
  x[3] = F32OfBits(0x3F808000);  // ties go to even
  x[4] = F32OfBits(0x3F818000);
  x[5] = -0.0F;
  for (const auto& driver : DevicesUnderTest(/*few=*/true)) {
    const int64_t granule = driver->properties().map_granule_bytes;
    const int64_t bytes = (kBytes + granule - 1) / granule * granule;
    std::byte* const at = *driver->Reserve(bytes);
    ASSERT_TRUE(driver->Map(at, bytes).ok());
    driver->Load(cuda::RoundSumKernel().kernel);
    driver->Load(cuda::WidenSumKernel().kernel);
    auto* const sum = reinterpret_cast<float*>(at);
    auto* const rounded = reinterpret_cast<uint16_t*>(at + kBytes / 2);
    for (const int64_t count : {1, 7, 8, 2047, 2049, 5000}) {
      std::vector<float> got(count + 8);
      std::vector<uint16_t> sent(count + 8);
      driver->Fill(at, std::byte{0xFF}, kBytes);
      driver->CopyToDevice(x.data(), at, count * 4);
      RoundSum(*driver, sum, rounded, count);
      driver->Fill(at, std::byte{0xFF}, kBytes / 2);
      WidenSum(*driver, rounded, sum, count);
      driver->CopyToHost(at, got.data(), (count + 8) * 4);
      driver->CopyToHost(at + kBytes / 2, sent.data(), (count + 8) * 2);
      ASSERT_TRUE(driver->Synchronize().ok());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(sent[i], Bf16OfF32(x[i])) << i;
        ASSERT_EQ(BitsOfF32(got[i]), uint32_t{sent[i]} << 16) << i;
      }
      for (int64_t i = count; i < count + 8; ++i) {
        ASSERT_EQ(sent[i], 0xFFFF) << count;
        ASSERT_EQ(BitsOfF32(got[i]), 0xFFFFFFFFU) << count;
      }
    }
    RoundSum(*driver, sum, rounded, 0);  // launches nothing
    ASSERT_TRUE(driver->Synchronize().ok());
    driver->Unmap(at, bytes);
    driver->ReleaseRange(at, bytes);
  }
}

}  // namespace
}  // namespace bulkhead
