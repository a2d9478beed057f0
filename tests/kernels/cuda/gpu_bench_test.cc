// What `bench kernels` measures on a GPU, on the emulator: figures mean nothing there, but every
// product and every attention runs, and reading reads everything.
#include "kernels/bench/gpu_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/bench/read_all.h"
#include "tests/kernels/cuda/cuda_fixture.h"

namespace bulkhead {
namespace {

TEST(GpuBench, MeasuresEveryKindInEveryFormat) {
  CudaUnderTest cuda;
  std::multiset<std::string> kinds;
  const absl::Status status = MeasureGpuKernels(
      *cuda.driver, false, {.filter = "", .quick = true}, [&](const KernelResult& result) {
        kinds.insert(
            absl::StrCat(result.name.substr(0, result.name.find('/')), " ", result.format));
        EXPECT_GT(result.seconds, 0) << result.name;
        EXPECT_GT(result.read_gb_per_s, 0);
        EXPECT_EQ(result.share_of_peak, 0) << "without a library there is no peak";
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(kinds.count("launch -"), 1U);
  for (const char* format : {"bfloat16", "int8", "int4", "fp8"}) {
    EXPECT_EQ(kinds.count(std::string("attend ") + format), 3U) << format;
  }
  EXPECT_EQ(kinds.count("product bfloat16"), 30U);  // 5 weights, 6 counts of tokens
  EXPECT_EQ(kinds.count("product int8/128"), 24U);
  EXPECT_EQ(kinds.count("product int4/128"), 24U);
  for (const char* format : {"bfloat16", "int8/128", "int4/128"}) {
    EXPECT_EQ(kinds.count(std::string("experts ") + format), 2U) << format;
  }
}

TEST(GpuBench, MeasuresWhatTheFilterNames) {
  CudaUnderTest cuda;
  std::vector<std::string> names;
  ASSERT_TRUE(MeasureGpuKernels(*cuda.driver, false,
                                {.filter = "product/qkv/64x512/4", .quick = true},
                                [&](const KernelResult& result) { names.push_back(result.name); })
                  .ok());
  EXPECT_THAT(names, testing::ElementsAre("product/qkv/64x512/4", "product/qkv/64x512/4",
                                          "product/qkv/64x512/4"));
}

TEST(ReadAll, ReadsEveryChunkOnce) {
  for (CudaUnderTest& cuda : AllSchedules()) {
    constexpr int kBlocks = 3;
    constexpr int64_t kChunks = 10007;
    std::vector<uint32_t> words(kChunks * 4 + 3), sums(kBlocks * cuda::kRowThreads);
    for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint32_t>(i * 2654435761U);
    auto* const aligned = reinterpret_cast<unsigned char*>(
        (reinterpret_cast<uintptr_t>(words.data()) + 15) / 16 * 16);
    const auto* const first = reinterpret_cast<const uint32_t*>(aligned);
    cuda.driver->Load(cuda::ReadAllKernel().kernel);
    Enqueue(*cuda.driver, cuda::ReadAllKernel(),
            {.grid = {kBlocks, 1, 1}, .block = {cuda::kRowThreads, 1, 1}},
            {aligned, kChunks, sums.data()});
    ASSERT_TRUE(cuda.driver->Synchronize().ok());
    const auto all = [](uint32_t a, uint32_t b) { return a ^ b; };
    EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0U, all),
              std::accumulate(first, first + kChunks * 4, 0U, all));
  }
}

}  // namespace
}  // namespace bulkhead
