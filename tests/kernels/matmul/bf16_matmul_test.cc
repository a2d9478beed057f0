// MatMul with activations in bf16 gives the bits of the promised chain of pairs, whatever the
// instruction set, the number of rows, the threads and the slices; and what the chain says of odd
// slices, denormal numbers and infinities.
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

struct Case {
  int64_t rows;
  int64_t outputs;
  std::vector<int64_t> k_borders;  // the last one is K
  int64_t inputs() const { return k_borders.back(); }
};

// Numbers that bf16 holds only in part; with `extremes` large and denormal ones too, whose products
// are denormal, infinite or cancel.
std::vector<float> Numbers(int64_t count, uint32_t seed, bool extremes) {
  std::vector<float> numbers = NormalFloats(count, seed);
  std::mt19937 random(seed);
  for (float& number : numbers) {
    if (!extremes || random() % 8 != 0) continue;
    number = std::ldexp(number, static_cast<int>(random() % 250) - 135);
  }
  return numbers;
}

std::vector<float> ProductOn(Backend& backend, const Linear& linear, const Case& c,
                             std::vector<float> x) {
  std::vector<float> out(c.rows * c.outputs, 12345.0F);
  backend.MatMul(ViewOf(x, c.rows, c.inputs(), c.inputs()), linear,
                 ViewOf(out, c.rows, c.outputs, c.outputs));
  return out;
}

std::vector<float> Ordered(const Case& c, const std::vector<float>& weight,
                           const std::vector<float>& x) {
  const auto device = NewHostDevice(0);
  const auto backend = NewOrderedBackend(*device, ActivationDType::kBf16);
  const LinearShape shape{c.outputs, c.inputs(), WeightFormat::kBF16, c.k_borders};
  Buffer memory = std::move(device->Allocate(backend->PackedBytes(shape))).value();
  const Linear linear{shape, memory.data()};
  const std::vector<std::byte> bytes = AsBytes(weight, DType::kF32);
  backend->Pack(linear)->PutRows(
      0, ConstMatrixView(bytes.data(), DType::kF32, shape.rows, shape.cols));
  return ProductOn(*backend, linear, c, x);
}

class Bf16MatMulTest : public testing::TestWithParam<Isa> {
 protected:
  static std::vector<float> Product(const Case& c, int threads, const std::vector<float>& weight,
                                    const std::vector<float>& x) {
    CpuFixture cpu(GetParam(), threads, 128, ActivationDType::kBf16);
    Buffer memory;
    const Linear linear = cpu.Pack({c.outputs, c.inputs(), WeightFormat::kBF16, c.k_borders},
                                   weight, DType::kF32, memory);
    return ProductOn(cpu.backend(), linear, c, x);
  }
  static void ExpectBits(const Case& c, bool extremes = false) {
    const std::vector<float> weight = Numbers(c.outputs * c.inputs(), 1, extremes);
    const std::vector<float> x = Numbers(c.rows * c.inputs(), 2, extremes);
    const std::vector<float> want = Ordered(c, weight, x);
    for (const int threads : {1, 3}) {
      const std::vector<float> out = Product(c, threads, weight, x);
      for (size_t i = 0; i < out.size(); ++i) {
        // Which NaN it is depends on the instruction; a NaN ends its request.
        if (std::isnan(out[i]) && std::isnan(want[i])) continue;
        ASSERT_EQ(0, std::memcmp(&out[i], &want[i], sizeof(float)))
            << std::hexfloat << out[i] << " for " << want[i] << " at " << i << ", rows " << c.rows
            << " outputs " << c.outputs << " inputs " << c.inputs() << " slices "
            << c.k_borders.size() - 1 << " threads " << threads;
      }
    }
  }
};

TEST_P(Bf16MatMulTest, EqualsTheChainOfPairsForAnyRows) {
  for (const int64_t rows : {1, 2, 3, 4, 5, 12, 13, 47, 49, 100}) {
    ExpectBits({rows, 70, {0, 100}});
    ExpectBits({rows, 33, {0, 1}});
  }
}

TEST_P(Bf16MatMulTest, BeginsEachSliceWithAWholePair) {
  for (const int64_t rows : {1, 4, 30}) {
    ExpectBits({rows, 40, {0, 7, 7, 50, 51, 98, 101, 140, 161}});
    ExpectBits({rows, 40, {0, 1, 2, 3, 4}});
    ExpectBits({rows, 96, {0, 515}});
    ExpectBits({rows, 96, {0, 1029, 3000}});
    // Blocks of as many inputs as there is room for.
    ExpectBits({rows, 32, {0, 1023, 2046}});
  }
  // Multiplied panel by panel, and slice by slice.
  for (const int64_t inputs : {3560, 3600, 7150, 7200}) {
    ExpectBits({48, 300, {0, 1025, 2001, 3001, inputs}});
    ExpectBits({48, 40, {0, inputs}});
  }
}

TEST_P(Bf16MatMulTest, TakesDenormalNumbersAsZero) {
  for (const int64_t rows : {1, 4, 30}) {
    ExpectBits({rows, 64, {0, 64}}, true);
    ExpectBits({rows, 64, {0, 33, 64}}, true);
  }
  constexpr float kSmall = std::numeric_limits<float>::min();
  const Case c{1, 1, {0, 2}};
  EXPECT_EQ(Product(c, 1, {1, 1}, {kSmall / 2, 0})[0], 0);         // an input
  EXPECT_EQ(Product(c, 1, {0.5F, 0}, {kSmall, 0})[0], 0);          // a result
  EXPECT_EQ(Product(c, 1, {0.5F, 0.5F}, {kSmall, kSmall})[0], 0);  // each on its own
  EXPECT_EQ(Product(c, 1, {1, 0}, {kSmall, 0})[0], kSmall);
  // One that would be rounded up to the smallest normal number, in one row and in many.
  constexpr float kNearlySmall = 0x1.FEp-127F;
  for (const int64_t rows : {1, 5, 13}) {
    const std::vector<float> x(rows, kNearlySmall);
    EXPECT_EQ(Product({rows, 1, {0, 1}}, 1, {1}, x), std::vector<float>(rows, 0)) << rows;
    EXPECT_EQ(Ordered({rows, 1, {0, 1}}, {1}, x), std::vector<float>(rows, 0)) << rows;
  }
}

TEST_P(Bf16MatMulTest, RoundsInputsToNearestEven) {
  const Case c{1, 1, {0, 1}};
  EXPECT_EQ(Product(c, 1, {1}, {1 + 0x1p-8F})[0], 1);
  EXPECT_EQ(Product(c, 1, {1}, {1 + 3 * 0x1p-8F})[0], 1 + 0x1p-6F);
}

TEST_P(Bf16MatMulTest, AddsTheSecondOfAPairFirst) {
  const Case c{1, 1, {0, 4}};
  EXPECT_EQ(Product(c, 1, {1, 1, 1, 1}, {0, 1, 0x1p-30F, -1})[0], 0x1p-30F);
  EXPECT_EQ(Product(c, 1, {1, 1, 1, 1}, {0, 1, -1, 0x1p-30F})[0], 0);
}

INSTANTIATE_TEST_SUITE_P(All, Bf16MatMulTest, testing::ValuesIn(PresentIsas()),
                         [](const auto& info) { return IsaName(info.param); });

}  // namespace
}  // namespace bulkhead
