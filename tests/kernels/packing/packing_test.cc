// Packing and number formats: what goes in comes out, rounded to nearest even, in every variant.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "kernels/packing/packing.h"
#include "kernels/packing/weight_quantizer.h"
#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

uint32_t Bits(float x) { return BitsOfF32(x); }

TEST(NumberFormatTest, RoundsToF16ToNearestEven) {
  EXPECT_EQ(F16OfF32(1.0f), 0x3C00);
  EXPECT_EQ(F16OfF32(65504.0f), 0x7BFF);
  EXPECT_EQ(F16OfF32(65519.996f), 0x7BFF);
  EXPECT_EQ(F16OfF32(65520.0f), 0x7C00);
  EXPECT_EQ(F16OfF32(-1e10f), 0xFC00);
  EXPECT_EQ(F16OfF32(0x1p-24f), 0x0001);
  EXPECT_EQ(F16OfF32(0x1p-25f), 0x0000);  // a tie goes to even
  EXPECT_EQ(F16OfF32(0x3p-25f), 0x0002);
  EXPECT_EQ(F16OfF32(0x1.ff8p-15f), 0x03FF);
  EXPECT_EQ(F16OfF32(0x1.fffp-15f), 0x0400);
  EXPECT_EQ(F16OfF32(-0.0f), 0x8000);
  EXPECT_EQ(F16OfF32(F32OfBits(0x7F800001)), 0x7E00);
}

TEST(NumberFormatTest, HoldsEveryHalfExactly) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const uint16_t x = static_cast<uint16_t>(half);
    if (std::isnan(F32OfF16(x))) {
      ASSERT_EQ(F16OfF32(F32OfF16(x)), x | 0x200);
    } else {
      ASSERT_EQ(F16OfF32(F32OfF16(x)), x);
    }
    if (std::isnan(F32OfBf16(x))) {
      ASSERT_EQ(Bf16OfF32(F32OfBf16(x)), x | 0x40);
    } else {
      ASSERT_EQ(Bf16OfF32(F32OfBf16(x)), x);
    }
  }
}

// Bit patterns around every border of the formats, and many random ones.
std::vector<uint32_t> AwkwardPatterns() {
  std::vector<uint32_t> patterns;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      patterns.push_back(high << 16 | low);
    }
  }
  std::mt19937 generator(7);
  for (int i = 0; i < 100000; ++i) patterns.push_back(generator());
  for (uint32_t magnitude = 0x33000000; magnitude < 0x39000000; magnitude += 0x801) {
    patterns.push_back(magnitude);  // f16's subnormals
  }
  return patterns;
}

class ConvertTest : public ::testing::TestWithParam<Isa> {};

TEST_P(ConvertTest, EqualsTheIntegerCodeBitForBit) {
  const ConvertKernels& kernels = BH_OF_ISA(GetParam(), kConvertKernels);
  const std::vector<uint32_t> patterns = AwkwardPatterns();
  const int64_t count = static_cast<int64_t>(patterns.size());
  std::vector<uint16_t> bf16(count), f16(count);
  kernels.f32_to_bf16(patterns.data(), count, bf16.data());
  kernels.f32_to_f16(patterns.data(), count, f16.data());
  for (int64_t i = 0; i < count; ++i) {
    const float x = F32OfBits(patterns[i]);
    ASSERT_EQ(bf16[i], Bf16OfF32(x)) << std::hex << patterns[i];
    ASSERT_EQ(f16[i], F16OfF32(x)) << std::hex << patterns[i];
  }
  std::vector<uint16_t> halves(0x10000);
  std::iota(halves.begin(), halves.end(), 0);
  std::vector<float> from_bf16(halves.size()), from_f16(halves.size());
  std::vector<uint16_t> crossed(halves.size());
  kernels.bf16_to_f32(halves.data(), halves.size(), from_bf16.data());
  kernels.f16_to_f32(halves.data(), halves.size(), from_f16.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(Bits(from_bf16[i]), Bits(F32OfBf16(halves[i])));
    ASSERT_EQ(Bits(from_f16[i]), Bits(F32OfF16(halves[i])));
  }
  kernels.f16_to_bf16(halves.data(), halves.size(), crossed.data());
  for (size_t i = 0; i < halves.size(); ++i) ASSERT_EQ(crossed[i], Bf16OfF32(from_f16[i]));
  kernels.bf16_to_f16(halves.data(), halves.size(), crossed.data());
  for (size_t i = 0; i < halves.size(); ++i) ASSERT_EQ(crossed[i], F16OfF32(from_bf16[i]));
}

TEST_P(ConvertTest, WritesExactlyAsManyAsAsked) {
  const ConvertKernels& kernels = BH_OF_ISA(GetParam(), kConvertKernels);
  const std::vector<float> x = NormalFloats(40, 5);
  for (int64_t count = 0; count < 40; ++count) {
    std::vector<uint16_t> half(41, 0xABCD);
    kernels.f32_to_bf16(x.data(), count, half.data());
    EXPECT_EQ(half[count], 0xABCD);
    std::vector<float> wide(41, -7.0f);
    kernels.bf16_to_f32(half.data(), count, wide.data());
    EXPECT_EQ(wide[count], -7.0f);
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(wide[i], Rounded(x[i], DType::kBF16));
  }
}

// Values of every kind, a row of each length.
std::vector<float> Values(int64_t count) {
  std::vector<float> values = NormalFloats(count, 9);
  const float special[] = {0.0f,   -0.0f,   INFINITY, -INFINITY, NAN,
                           1e-40f, -1e-40f, 3e38f,    70000.0f,  6e-8f};
  for (int64_t i = 0; i < count; i += 3) values[i] = special[i / 3 % 10];
  return values;
}

TEST_P(ConvertTest, PackedRowsComeBackThroughEmbed) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType source : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int64_t rows : {1, 7, 31, 32, 33, 70}) {
        for (const int64_t cols : {1, 17, 300, 600}) {
          CpuFixture cpu(GetParam(), 2);
          const std::vector<float> values = Values(rows * cols);
          Buffer memory;
          const Linear table =
              cpu.Pack(LinearShape::Whole(rows, cols, dtype), values, source, memory);
          std::vector<int32_t> tokens(rows);
          std::iota(tokens.begin(), tokens.end(), 100);
          std::reverse(tokens.begin(), tokens.end());
          std::vector<float> out(rows * cols);
          cpu.backend().Embed(tokens.data(), table, 100, ViewOf(out, rows, cols, cols));
          for (int64_t t = 0; t < rows; ++t) {
            for (int64_t k = 0; k < cols; ++k) {
              const float kept =
                  Rounded(Rounded(values[(rows - 1 - t) * cols + k], source), dtype) + 0.0f;
              if (std::isnan(kept)) {
                ASSERT_TRUE(std::isnan(out[t * cols + k]));
              } else {
                ASSERT_EQ(Bits(out[t * cols + k]), Bits(kept));
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(ConvertTest, PadsTheLastPanelWithZeros) {
  CpuFixture cpu(GetParam(), 1);
  Buffer memory;
  const Linear linear = cpu.Pack(LinearShape::Whole(33, 5, DType::kBF16),
                                 std::vector<float>(33 * 5, 1.0f), DType::kF32, memory);
  // 5 inputs are two pairs and a half one.
  ASSERT_EQ(memory.bytes(), 2 * 3 * 32 * 4);
  const uint32_t* second = reinterpret_cast<const uint32_t*>(linear.packed) + 3 * 32;
  for (int i = 0; i < 3 * 32; ++i) {
    EXPECT_EQ(second[i], i == 64 ? 0x3F80U : i % 32 == 0 ? 0x3F803F80U : 0U);
  }
}

// Rows arrive in any pieces and from several threads, also rows of one panel.
TEST_P(ConvertTest, RowsMayArriveInPiecesFromSeveralThreads) {
  const int64_t rows = 100, cols = 333;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    CpuFixture cpu(GetParam(), 1);
    const LinearShape shape = LinearShape::Whole(rows, cols, dtype);
    const std::vector<float> values = NormalFloats(rows * cols, 11);
    Buffer whole_memory;
    const Linear whole = cpu.Pack(shape, values, DType::kF32, whole_memory);
    Buffer memory = cpu.Allocate(cpu.backend().PackedBytes(shape));
    const std::unique_ptr<WeightSink> sink = cpu.backend().Pack({shape, memory.data()});
    const ConstMatrixView source(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                                 rows, cols);
    std::vector<std::thread> threads;
    for (int part = 0; part < 3; ++part) {
      threads.emplace_back([&, part] {
        for (int64_t row = part; row < rows; row += 3) sink->PutRows(row, source.Rows(row, 1));
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(0, std::memcmp(memory.data(), whole.packed, memory.bytes()));
    sink->PutRows(3, source.Rows(3, 90));
    EXPECT_EQ(0, std::memcmp(memory.data(), whole.packed, memory.bytes()));
  }
}

// A row alone takes another way than a whole panel.
TEST_P(ConvertTest, QuantizedRowsMayArriveInPiecesToo) {
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    CpuFixture cpu(GetParam(), 1);
    // Cells of 128, 22, 106 and 77 inputs: whole words and not.
    const LinearShape shape{70, 333, format, {0, 150, 333}, {128, 0, 0}};
    const std::vector<float> values = NormalFloats(shape.rows * shape.cols, 12);
    const ConstMatrixView source(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                                 shape.rows, shape.cols);
    Buffer whole = cpu.Allocate(cpu.backend().PackedBytes(shape));
    cpu.backend().Pack({shape, whole.data()})->PutRows(0, source);
    Buffer memory = cpu.Allocate(cpu.backend().PackedBytes(shape));
    const std::unique_ptr<WeightSink> sink = cpu.backend().Pack({shape, memory.data()});
    for (int64_t row = 0; row < shape.rows; ++row) sink->PutRows(row, source.Rows(row, 1));
    EXPECT_EQ(0, std::memcmp(memory.data(), whole.data(), memory.bytes()));
  }
}

TEST_P(ConvertTest, QuantisesToTheSameCodesAsThePlainLoops) {
  const WeightLoops& loops = BH_OF_ISA(GetParam(), kPackingKernels).loops;
  for (const int64_t count : {1, 15, 16, 33, 128}) {
    for (const float magnitude : {0.0F, 1e-40F, 1e-6F, 1.0F, 3e38F, INFINITY, NAN}) {
      std::vector<float> weights = NormalFloats(count, 13);
      weights[count / 2] = magnitude;
      weights.back() = -weights.back();
      const WeightRange range = loops.range_of(weights.data(), count);
      const WeightRange plain = kPlainWeightLoops.range_of(weights.data(), count);
      ASSERT_EQ(range.finite, plain.finite);
      if (!range.finite) continue;
      EXPECT_EQ(Bits(range.min), Bits(plain.min));
      EXPECT_EQ(Bits(range.max), Bits(plain.max));
      for (const float inverse : {0.0F, 0.7F, 127.0F, 1e30F}) {
        std::vector<uint8_t> codes(count + 1, 0xEE);
        std::vector<uint8_t> expected(count + 1, 0xEE);
        loops.encode(weights.data(), count, inverse, 8.0F, 0.0F, 15.0F, codes.data());
        kPlainWeightLoops.encode(weights.data(), count, inverse, 8.0F, 0.0F, 15.0F,
                                 expected.data());
        EXPECT_EQ(codes, expected) << count << " " << magnitude << " " << inverse;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, ConvertTest, ::testing::ValuesIn(PresentIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace bulkhead
