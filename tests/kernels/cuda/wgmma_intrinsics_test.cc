// Products of warpgroups against a plain reference of what they are said to be; on the emulator,
// and on a device of compute capability 9.0.
#include <cstring>
#include <random>

#include "gtest/gtest.h"
#include "kernels/simd/number_format.h"
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/cuda/intrinsic_probes_sm_90a.h"

namespace bulkhead {
namespace {

constexpr int kDepth = 32;

using cuda::ProductCase;

std::vector<ProductCase> AllCases() {
  std::vector<ProductCase> cases;
  for (const bool b_is_rows : {false, true}) {
    for (const int columns : {16, 32, 64, 128, 256}) {
      if ((columns < 64 || columns > 128) && !b_is_rows) continue;
      for (const bool is_f16 : {false, true}) {
        for (const bool shared_a : {false, true}) {
          if (columns > 128 && !shared_a) continue;
          cases.push_back({is_f16, columns, shared_a, b_is_rows});
        }
      }
    }
  }
  return cases;
}

class WarpgroupProducts : public testing::TestWithParam<ProductCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, WarpgroupProducts, testing::ValuesIn(AllCases()));

TEST_P(WarpgroupProducts, AreThoseOfRowsAndColumns) {
  const ProductCase& c = GetParam();
  std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> numbers(64 * kDepth + kDepth * c.columns);
  for (uint16_t& x : numbers)
    x = c.is_f16 ? F16OfF32(normal(generator)) : Bf16OfF32(normal(generator));
  std::vector<uint32_t> in(numbers.size() / 2);
  std::memcpy(in.data(), numbers.data(), numbers.size() * 2);
  const auto number = [&](int i) {
    return double{c.is_f16 ? F32OfF16(numbers[i]) : F32OfBf16(numbers[i])};
  };
  const auto devices = DevicesUnderTest(/*few=*/false, /*host_memory_too=*/false, 9);
  if (devices.empty()) GTEST_SKIP() << "no device of compute capability 9.0";
  for (const auto& driver : devices) {
    DeviceArrays arrays(*driver);
    const int64_t of_output = int64_t{64} * c.columns;
    const cuda::ProbeParameters parameters{arrays.Put(in), arrays.New<uint32_t>(2 * of_output)};
    Enqueue(*driver, cuda::ProductProbe(c), {.block = {128, 1, 1}, .shared_bytes = 40 << 10},
            parameters);
    const std::vector<uint32_t> bits = arrays.Get(parameters.out, 2 * of_output);
    std::vector<float> out(bits.size());
    std::memcpy(out.data(), bits.data(), bits.size() * 4);
    for (int row = 0; row < 64; ++row) {
      for (int column = 0; column < c.columns; ++column) {
        double first = 0, all = 1;
        for (int k = 0; k < kDepth; ++k) {
          const double x = number(row * kDepth + k) * number(64 * kDepth + k * c.columns + column);
          all += x;
          if (k < 16) first += x;
        }
        const int64_t at = int64_t{row} * c.columns + column;
        ASSERT_NEAR(out[at], all, 2e-5) << row << " " << column;
        ASSERT_NEAR(out[of_output + at], first, 2e-5) << row << " " << column;
      }
    }
  }
}

TEST(WordsBesideWarpgroupProducts, SumsOfF16PairsAreRoundedOnce) {
  std::mt19937 generator(4);
  std::vector<uint32_t> in(96);
  // Between 1/2 and 2 in size, so that f32 has every sum.
  for (uint32_t& word : in) word = (generator() & 0x87FF87FFU) | 0x38003800U;
  in[0] = 0x04000001;
  in[1] = 0x3C003C00;  // 1
  in[2] = 0x80008000;  // -0
  const auto devices = DevicesUnderTest(/*few=*/false, /*host_memory_too=*/false, 9);
  if (devices.empty()) GTEST_SKIP() << "no device of compute capability 9.0";
  for (const auto& driver : devices) {
    DeviceArrays arrays(*driver);
    const cuda::ProbeParameters parameters{arrays.Put(in), arrays.New<uint32_t>(32)};
    Enqueue(*driver, cuda::SumsOfF16PairsProbe(), {.block = {32, 1, 1}}, parameters);
    const std::vector<uint32_t> out = arrays.Get(parameters.out, 32);
    EXPECT_EQ(out[0], in[0]);  // the smallest normal number and the smallest of all
    for (int lane = 0; lane < 32; ++lane) {
      for (const int shift : {0, 16}) {
        const auto number = [&](int i) {
          return F32OfF16(static_cast<uint16_t>(in[3 * lane + i] >> shift));
        };
        EXPECT_EQ(static_cast<uint16_t>(out[lane] >> shift),
                  F16OfF32(number(0) * number(1) + number(2)));
      }
    }
  }
}

}  // namespace
}  // namespace bulkhead
