// Embed and MatMul on CUDA against the reference in double: every weight format, odd shapes, groups
// that borders of slices cut, act order; the same bits in every order of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/packing/cuda_layout.h"
#include "kernels/simd/number_format.h"
#include "memory/fp8.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/cuda/packed_weight.h"
#include "tests/kernels/products_support.h"
#include "tests/kernels/variants.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

// norm(got - want) / norm(want): inputs are rounded to 8 (bf16) or 11 bits.
constexpr double kBf16Tolerance = 5e-3;
constexpr double kF16Tolerance = 4e-4;

std::vector<ProductCase> Cases() {
  std::vector<ProductCase> cases;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const auto& [rows, cols] : {std::pair{33, 7}, {64, 128}, {5, 1000}, {100, 322}}) {
      cases.push_back({LinearShape::Whole(rows, cols, dtype)});
    }
  }
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    for (const bool stored : {false, true}) {
      cases.push_back({{33, 7, format, {0, 7}, {32, 0, 0}}, stored});
      cases.push_back({{64, 256, format, {0, 256}, {128, 0, 0}}, stored});
      cases.push_back({{100, 322, format, {0, 322}, {64, 0, 0}}, stored});
      cases.push_back({{31, 320, format, {0, 64, 128, 192, 320}, {32, 0, 0}}, stored});
      cases.push_back({{40, 150, format, {0, 38, 75, 113, 150}, {32, 0, 0}}, stored});
      cases.push_back({{16, 64, format, {0, 64, 64, 64, 64}, {32, 0, 0}}, stored});
    }
    cases.push_back({{70, 96, format, {0, 48, 96}, {32, 16, 0}}, true});  // begins in a group
  }
  cases.push_back({{40, 150, WeightFormat::kInt4, {0, 75, 150}, {32, 0, 5}}, true});  // act order
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    cases.push_back({{100, 322, format, {0, 322}, {64, 0, 0, ScaleFormat::kBF16}}, true});
  }
  cases.push_back(
      {{70, 96, WeightFormat::kNvfp4, {0, 40, 96}, {16, 8, 0, ScaleFormat::kE4M3}}, true});
  for (const WeightFormat format :
       {WeightFormat::kFp8, WeightFormat::kMxfp4, WeightFormat::kNvfp4}) {
    const ScaleFormat scales = StoredScalesOf(format);
    cases.push_back({{33, 64, format, {0, 64}, {64, 0, 0, scales}}, true});
    cases.push_back({{100, 322, format, {0, 322}, {64, 0, 0, scales}}, true});
    cases.push_back({{31, 320, format, {0, 64, 128, 192, 320}, {32, 0, 0, scales}}, true});
    cases.push_back({{70, 96, format, {0, 48, 96}, {32, 16, 0, scales}}, true});
  }
  cases.push_back({{48, 64, WeightFormat::kInt4, {0, 64}, {32, 0, 3}}, true});
  return cases;
}

class CudaProducts : public testing::TestWithParam<ProductCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, CudaProducts, testing::ValuesIn(Cases()));

TEST_P(CudaProducts, AreThoseOfTheReference) {
  const ProductCase& c = GetParam();
  for (const int64_t rows : {1, 7, 9, 45, 200}) {
    std::vector<float> x = NormalFloats(rows * (c.shape.cols + 3), static_cast<uint32_t>(rows));
    const auto run = [&](Backend& backend) {
      Packed packed(backend, c, 100);  // fewer rows at once than the most
      std::vector<float> out(rows * (c.shape.rows + 1), NAN);
      backend.MatMul(ViewOf(x, rows, c.shape.cols, c.shape.cols + 3), packed.linear,
                     ViewOf(out, rows, c.shape.rows, c.shape.rows + 1));
      packed.Wait();
      for (int64_t row = rows; row > 0; --row) {
        EXPECT_TRUE(std::isnan(out[row * (c.shape.rows + 1) - 1]));
        out.erase(out.begin() + row * (c.shape.rows + 1) - 1);
      }
      return out;
    };
    const std::unique_ptr<Device> host = NewHostDevice(0);
    const double tolerance = c.shape.format == WeightFormat::kF16 ? kF16Tolerance : kBf16Tolerance;
    EXPECT_LT(RelativeError(OnAllSchedules(run), run(*NewReferenceBackend(*host))), tolerance)
        << rows << " rows";
  }
}

// Rows that come in the numbers of products are read where they lie, if they lie well, else
// gathered: the same bits as of rows in f32.
TEST_P(CudaProducts, OfRoundedRowsAreTheSameBits) {
  const ProductCase& c = GetParam();
  const int64_t cols = c.shape.cols;
  const DType dtype = c.shape.format == WeightFormat::kF16 ? DType::kF16 : DType::kBF16;
  for (const int64_t rows : {1, 3, 70}) {
    std::vector<float> x = NormalFloats(rows * cols, static_cast<uint32_t>(rows));
    const auto product_of = [&](ConstMatrixView view) {
      return OnAllSchedules(
          [&](Backend& backend) {
            Packed packed(backend, c, 100);
            std::vector<float> out(rows * c.shape.rows, NAN);
            backend.MatMul(view, packed.linear, ViewOf(out, rows, c.shape.rows, c.shape.rows));
            packed.Wait();
            return out;
          },
          true);
    };
    const std::vector<float> want = product_of(ViewOf(x, rows, cols, cols));
    for (const int64_t gap : {0, 1}) {
      const int64_t stride = cols + gap;
      std::vector<uint16_t> rounded(rows * stride, 0x7FC0);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < cols; ++col) {
          const float number = x[row * cols + col];
          rounded[row * stride + col] = dtype == DType::kF16 ? F16OfF32(number) : Bf16OfF32(number);
        }
      }
      ExpectSameBits(product_of({reinterpret_cast<const std::byte*>(rounded.data()), dtype, rows,
                                 cols, stride}),
                     want);
    }
  }
}

TEST_P(CudaProducts, TableRowsAreWidenedExactly) {
  const ProductCase& c = GetParam();
  if (cuda::HasFloatCodes(c.shape.format)) return;  // no table has these
  const std::vector<int32_t> tokens = {102, 99, 100, 104, 100 + static_cast<int32_t>(c.shape.rows)};
  const auto run = [&](Backend& backend) {
    Packed packed(backend, c, 8);
    std::vector<float> out(tokens.size() * c.shape.cols, NAN);
    backend.Embed(tokens.data(), packed.linear, 100,
                  ViewOf(out, static_cast<int64_t>(tokens.size()), c.shape.cols, c.shape.cols));
    packed.Wait();
    return out;
  };
  const std::unique_ptr<Device> host = NewHostDevice(0);
  ExpectSameBits(OnAllSchedules(run), run(*NewReferenceBackend(*host)));
}

// Of routers. Neither their weights nor their inputs are rounded.
TEST(CudaProduct, OfWeightsInF32IsInF32) {
  const std::unique_ptr<Device> host = NewHostDevice(0);
  for (const auto& [outputs, inputs] :
       {std::pair{1, 4}, {33, 7}, {128, 64}, {60, 322}, {40, 2100}}) {
    const ProductCase c{LinearShape::Whole(outputs, inputs, DType::kF32)};
    for (const int64_t rows : {1, 3, 8, 9, 45, 530}) {
      if (rows > 45 && inputs > 64) continue;  // takes long
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        std::vector<float> x = NormalFloats(rows * inputs, static_cast<uint32_t>(rows));
        for (float& value : x) value = Rounded(value, dtype);
        const std::vector<std::byte> bytes = AsBytes(x, dtype);
        const auto run = [&](Backend& backend, ConstMatrixView view) {
          Packed packed(backend, c, 100);
          std::vector<float> out(rows * (outputs + 1), NAN);
          backend.MatMul(view, packed.linear, ViewOf(out, rows, outputs, outputs + 1));
          packed.Wait();
          for (int64_t row = rows; row > 0; --row) {
            EXPECT_TRUE(std::isnan(out[row * (outputs + 1) - 1]));
            out.erase(out.begin() + row * (outputs + 1) - 1);
          }
          return out;
        };
        const std::vector<float> want =
            run(*NewReferenceBackend(*host), ViewOf(x, rows, inputs, inputs));
        const std::vector<float> got = OnAllSchedules(
            [&](Backend& backend) {
              return run(backend, ConstMatrixView(bytes.data(), dtype, rows, inputs));
            },
            true);
        EXPECT_LT(RelativeError(got, want), 1e-6) << inputs << ", " << rows << " rows";
      }
    }
  }
}

// Every scale and number of nvfp4, and of scales in bf16 such as f16 does not have.
TEST(CudaProduct, EveryProductOfAScaleAndANumberIsExact) {
  constexpr int kCols = 80;
  CudaUnderTest cuda;
  const auto product_of = [&](const LinearShape& shape, int rows, const QuantizedRows& weights) {
    const ProductCase c{shape, true};
    Packed packed(*cuda.backend, c, rows);
    cuda.backend->Pack(packed.linear)->PutQuantizedRows(0, weights);
    std::vector<float> x(rows * kCols, 8.0F), out(rows * shape.rows);
    cuda.backend->MatMul(ViewOf(x, rows, kCols, kCols), packed.linear,
                         ViewOf(out, rows, shape.rows, shape.rows));
    packed.Wait();
    return out;
  };
  constexpr int kRows = 256 * 16;
  std::vector<uint8_t> codes(kRows * kCols, 0);
  std::vector<uint16_t> scales(kRows * 5);
  std::vector<float> factors(kRows, 0.0625F);
  for (int row = 0; row < kRows; ++row) {
    codes[row * kCols + 40] = static_cast<uint8_t>(row % 16);
    for (int group = 0; group < 5; ++group) {
      const int scale = (row / 16 & 0x7F) == 0x7F ? 0 : row / 16;  // which is no number
      scales[row * 5 + group] = static_cast<uint16_t>(group == 2 ? scale : 0x7E);
    }
  }
  for (const int rows : {1, 20, 70}) {
    const std::vector<float> out =
        product_of({kRows, kCols, WeightFormat::kNvfp4, {0, kCols}, {16, 0, 0, ScaleFormat::kE4M3}},
                   rows, {kRows, codes.data(), scales.data(), nullptr, nullptr, factors.data()});
    for (int i = 0; i < rows * kRows; ++i) {
      const int row = i % kRows;
      const float steps = static_cast<float>(kFp4Steps[row % 16] - kFp4Zero) / 2;
      ASSERT_EQ(out[i], 8 * steps * F32OfE4m3(static_cast<uint8_t>(scales[row * 5 + 2])) * 0.0625F);
    }
  }
  constexpr float kScales[] = {0x1p-126F,  0x1.82p-30F, 0x1.02p-20F,
                               -0x1.fep0F, 0x1.04p17F,  0x1p110F};
  constexpr int kFew = static_cast<int>(std::size(kScales));
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    const uint8_t zero = format == WeightFormat::kInt8 ? 128 : 16;
    std::vector<uint8_t> of_rows(kFew * kCols, zero == 16 ? 15 : zero), zeros(kFew, zero);
    std::vector<uint16_t> in_bf16;
    for (const float scale : kScales) in_bf16.push_back(Bf16OfF32(scale));
    for (int row = 0; row < kFew; ++row) of_rows[row * kCols + 7] = static_cast<uint8_t>(zero - 8);
    for (const int rows : {1, 20, 70}) {
      const std::vector<float> out =
          product_of({kFew, kCols, format, {0, kCols}, {128, 0, 0, ScaleFormat::kBF16}}, rows,
                     {kFew, of_rows.data(), in_bf16.data(), zeros.data()});
      const int others = zero == 16 ? -(kCols - 1) : 0;
      for (int i = 0; i < rows * kFew; ++i) {
        ASSERT_EQ(out[i], static_cast<float>(8 * (others - 8)) * kScales[i % kFew]) << i;
      }
    }
  }
}

// Every scale of mxfp4, the subnormal one, too: times numbers and inputs that are powers of two.
TEST(CudaProduct, EveryPowerOfTwoThatScalesMxfp4IsExact) {
  constexpr int kRows = 255, kCols = 96;
  const ProductCase c{
      {kRows, kCols, WeightFormat::kMxfp4, {0, kCols}, {32, 0, 0, ScaleFormat::kE8M0}}, true};
  CudaUnderTest cuda;
  Packed packed(*cuda.backend, c, 20);
  std::vector<uint8_t> codes(kRows * kCols, 0);
  std::vector<uint16_t> scales(kRows * 3);
  for (int row = 0; row < kRows; ++row) {
    codes[row * kCols + 40] = 2;  // 1
    for (int group = 0; group < 3; ++group) scales[row * 3 + group] = group == 1 ? row : 3;
  }
  cuda.backend->Pack(packed.linear)->PutQuantizedRows(0, {kRows, codes.data(), scales.data()});
  for (const int rows : {1, 20}) {
    std::vector<float> x(rows * kCols, 8.0F), out(rows * kRows);
    cuda.backend->MatMul(ViewOf(x, rows, kCols, kCols), packed.linear,
                         ViewOf(out, rows, kRows, kRows));
    packed.Wait();
    for (int i = 0; i < rows * kRows; ++i) {
      EXPECT_EQ(out[i], std::ldexp(1.0F, i % kRows - 124)) << i;
    }
  }
}

TEST(CudaProduct, AWeightThatIsNoNumberIsNoticed) {
  for (const WeightFormat format :
       {WeightFormat::kBF16, WeightFormat::kInt8, WeightFormat::kInt4}) {
    const ProductCase c{{16, 64, format, {0, 64}, {32, 0, 0}}};
    CudaUnderTest cuda;
    Packed packed(*cuda.backend, c, 1);
    std::vector<float> weights(16 * 64, 1.0F), x(64, 1.0F), out(16);
    weights[3 * 64 + 5] = NAN;
    cuda.backend->Pack(packed.linear)
        ->PutRows(0, ConstMatrixView(reinterpret_cast<const std::byte*>(weights.data()),
                                     DType::kF32, 16, 64));
    cuda.backend->MatMul(ViewOf(x, 1, 64, 64), packed.linear, ViewOf(out, 1, 16, 16));
    packed.Wait();
    for (int i = 0; i < 16; ++i) EXPECT_EQ(std::isnan(out[i]), i == 3) << i;
  }
}

}  // namespace
}  // namespace bulkhead
