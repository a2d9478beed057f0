// fp8 keys and values: AppendKv writes the code whose number is nearest to x / scale, found here by
// trying all of them, and what is not finite as a NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/sequence_cache.h"
#include "memory/fp8.h"
#include "tests/kernels/variants.h"

namespace bulkhead {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// By the bits' meaning: 8 + fraction, or fraction, times a power of two.
double NumberOf(int code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return code < 128 ? magnitude : -magnitude;
}

// To the nearest, of two equally near ones the even code; beyond 448 that.
uint8_t NearestCode(float quotient) {
  const float x = std::clamp(quotient, -1e6F, 1e6F);
  const int sign = std::signbit(x) ? 128 : 0;
  int nearest = sign;
  for (int code = sign; code < sign + 127; ++code) {
    const double distance = std::fabs(NumberOf(code) - double{x});
    const double least = std::fabs(NumberOf(nearest) - double{x});
    if (distance < least || (distance == least && code % 2 == 0)) nearest = code;
  }
  return static_cast<uint8_t>(nearest);
}

// Numbers of all codes, what lies between neighbours and just beside that, and beyond the range.
std::vector<float> HardNumbers() {
  std::vector<float> numbers;
  for (int code = 0; code < 256; ++code) {
    if ((code & 127) == 127) continue;
    const auto number = static_cast<float>(NumberOf(code));
    const float half = (code & 127) == 126 ? 1.0F : 0.5F;
    const auto next = static_cast<float>(NumberOf(code + ((code & 127) == 126 ? 0 : 1)));
    const float middle = half * number + half * next * (half == 1.0F ? 0.0F : 1.0F);
    for (const float x : {number, middle}) {
      numbers.insert(numbers.end(),
                     {x, std::nextafterf(x, kInfinity), std::nextafterf(x, -kInfinity)});
    }
  }
  for (const float x : {0.0F, -0.0F, 1e-45F, -1e-45F, 1e-30F, 463.9F, 464.0F, 464.1F, -480.0F,
                        1e30F, -3e38F, 0.3F}) {
    numbers.push_back(x);
  }
  numbers.resize((numbers.size() + 15) / 16 * 16, 1.0F);
  return numbers;
}

class Fp8Append : public testing::TestWithParam<Variant> {
 protected:
  Fp8Append() : device_(NewHostDevice(0)), backend_(GetParam().Make(*device_)) {}

  // One token of one head whose keys are `numbers`, and whose values are those the other way round.
  std::vector<uint8_t> Append(const std::vector<float>& numbers, float key_scale,
                              float value_scale) {
    const auto d = static_cast<int>(numbers.size());
    const KvGeometry geometry{1, d, 16, KvFormat::kFP8};
    std::vector<std::byte> arena(2 * geometry.LayerBlockBytes(), std::byte{0xAB});
    std::vector<float> qkv = numbers;
    qkv.insert(qkv.end(), numbers.rbegin(), numbers.rend());
    const int32_t zero = 0, one = 1, position = 3, seq_begin[] = {0, 1};
    const StepIndex index{1, 1, seq_begin, &zero, &position, &zero, &one, 1};
    KvLayerView layer{geometry, arena.data(), geometry.LayerBlockBytes()};
    layer.key_scales = &key_scale;
    layer.value_scales = &value_scale;
    backend_->AppendKv(
        index, {0, 1, d, nullptr},
        ConstMatrixView(reinterpret_cast<const std::byte*>(qkv.data()), DType::kF32, 1, 2 * d),
        layer);
    std::vector<uint8_t> codes;
    for (int i = 0; i < d; ++i) codes.push_back(uint8_t(layer.Keys(1, 0)[i * 16 + position]));
    for (int i = 0; i < d; ++i) codes.push_back(uint8_t(layer.Values(1, 0)[position * d + i]));
    EXPECT_EQ(layer.Keys(1, 0)[position + 1], std::byte{0xAB});
    EXPECT_EQ(layer.Values(1, 0)[(position + 1) * d], std::byte{0xAB});
    return codes;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
};

TEST_P(Fp8Append, WritesTheNearestCodeOfTheQuotient) {
  const std::vector<float> numbers = HardNumbers();
  const size_t d = numbers.size();
  for (const auto& [key_scale, value_scale] :
       {std::pair<float, float>{1, 1}, {0.37F, 1e-3F}, {3e-39F, 1e30F}}) {
    const std::vector<uint8_t> codes = Append(numbers, key_scale, value_scale);
    for (size_t i = 0; i < d; ++i) {
      EXPECT_EQ(codes[i], NearestCode(numbers[i] / key_scale)) << numbers[i] << "/" << key_scale;
      EXPECT_EQ(codes[2 * d - 1 - i], NearestCode(numbers[i] / value_scale)) << numbers[i];
    }
  }
}

TEST_P(Fp8Append, WritesWhatIsNotFiniteAsNanAndNothingElse) {
  for (const float fault : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (const int d : {10, 24}) {
      std::vector<float> numbers(d, 2.0F);
      numbers[d - 1] = fault;
      const std::vector<uint8_t> codes = Append(numbers, 0.5F, 2);
      for (int i = 0; i < d; ++i) {
        EXPECT_EQ(codes[i], i == d - 1 ? kE4m3Nan : NearestCode(4));
        EXPECT_EQ(codes[d + i], i == 0 ? kE4m3Nan : NearestCode(1));
      }
    }
  }
}

TEST_P(Fp8Append, EveryCodeIsReadBackAsItsNumber) {
  for (int code = 0; code < 256; ++code) {
    const float number = F32OfE4m3(static_cast<uint8_t>(code));
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(number));
    } else {
      EXPECT_EQ(number, NumberOf(code));
      EXPECT_EQ(std::signbit(number), code >= 128);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, Fp8Append, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
