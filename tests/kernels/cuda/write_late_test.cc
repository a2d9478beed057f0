#include "kernels/cuda/write_late.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/cuda/device_under_test.h"

namespace bulkhead {
namespace {

TEST(WriteLateTest, WritesItsNumbersAndNoOthers) {
  constexpr int64_t kBytes = int64_t{64} << 10;
  for (const auto& driver : DevicesUnderTest(/*few=*/true)) {
    const int64_t granule = driver->properties().map_granule_bytes;
    const int64_t bytes = (kBytes + granule - 1) / granule * granule;
    std::byte* const at = *driver->Reserve(bytes);
    ASSERT_TRUE(driver->Map(at, bytes).ok());
    driver->Load(cuda::WriteLateKernel().kernel);
    auto* const out = reinterpret_cast<float*>(at);
    for (const int64_t count : {1, 33, 257, 2200}) {  // the last more than a grid has threads
      std::vector<float> values(count + 40);
      driver->Fill(at, std::byte{0xFF}, static_cast<int64_t>(values.size() * sizeof(float)));
      if (count < 100) {
        WriteLate(*driver, out, count, /*first=*/7, /*period=*/100, /*offset=*/3);
      } else {  // sooner
        Enqueue(*driver, cuda::WriteLateKernel(),
                {.grid = {cuda::kWriteLateBlocks, 1, 1}, .block = {cuda::kWriteLateThreads, 1, 1}},
                cuda::WriteLateParameters{out, count, 7, 100, 3, /*turns=*/2});
      }
      driver->CopyToHost(at, values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
      ASSERT_TRUE(driver->Synchronize().ok());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[i], static_cast<float>((7 + i) % 100 + 3)) << count << " " << i;
      }
      for (size_t i = count; i < values.size(); ++i) ASSERT_TRUE(std::isnan(values[i]));
    }
    driver->Unmap(at, bytes);
    driver->ReleaseRange(at, bytes);
  }
}

TEST(WriteLateTest, TakesAsManyTurnsForManyNumbersAsForTheMostThatHaveAllOfThem) {
  for (const int64_t count : {1, 256, 65536}) EXPECT_EQ(cuda::WriteLateTurns(count), 2000) << count;
  for (const int64_t count : {65537, 1 << 20, 1 << 23, 1 << 25}) {
    const int64_t turns = cuda::WriteLateTurns(count);
    EXPECT_GE(turns, 2) << count;
    EXPECT_EQ(turns % 2, 0) << count;
    EXPECT_LE(turns * count, int64_t{2000} * 65536) << count;
  }
}

}  // namespace
}  // namespace bulkhead
