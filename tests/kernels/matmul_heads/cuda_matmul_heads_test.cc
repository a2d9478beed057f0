// MatMulHeads on CUDA: near the reference in double in every weight format, the same bits in every
// order of threads, and nothing is written between the heads' columns.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/matmul_heads/cuda_kernels.h"
#include "kernels/simd/number_format.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/matmul_heads/head_products.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

// norm(got - want) / norm(want): inputs are rounded to 8 (bf16) or 11 bits.
double ToleranceOf(WeightFormat format) { return format == WeightFormat::kF16 ? 4e-4 : 5e-3; }

std::vector<HeadsCase> Cases() {
  std::vector<HeadsCase> cases;
  for (const WeightFormat format :
       {WeightFormat::kBF16, WeightFormat::kF16, WeightFormat::kInt8, WeightFormat::kInt4}) {
    for (const int64_t rows : {1, 19, 70}) {
      cases.push_back({5, rows, 16, 32, 24, 40, format});
      cases.push_back({3, rows, 70, 45, 70, 45, format});
    }
    cases.push_back({2, 150, 128, 150, 192, 160, format});
  }
  cases.push_back({0, 2, 16, 32, 16, 32, WeightFormat::kBF16});
  return cases;
}

// What lies between the heads' columns.
void ExpectUntouched(const HeadsCase& c, const std::vector<float>& out) {
  const int64_t cols = c.num_heads * c.out_step + 5;
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    const int64_t column = i % cols;
    if (column < c.num_heads * c.out_step && column % c.out_step < c.outputs) continue;
    ASSERT_EQ(out[i], HeadProducts::kUntouched) << "column " << column;
  }
}

TEST(CudaMatMulHeads, AreThoseOfTheReference) {
  for (const HeadsCase& c : Cases()) {
    SCOPED_TRACE(testing::Message() << WeightFormatName(c.format) << ", " << c.num_heads
                                    << " heads, " << c.rows << " rows");
    const auto products = [&](Backend& backend) {
      std::vector<float> out = HeadProducts(backend, c).Run(0, c.rows);
      ExpectUntouched(c, out);
      std::replace(out.begin(), out.end(), HeadProducts::kUntouched, 0.0F);
      return out;
    };
    const std::unique_ptr<Device> host = NewHostDevice(0);
    const std::vector<float> got = OnAllSchedules(products);
    if (c.num_heads == 0) continue;
    EXPECT_LT(RelativeError(got, products(*NewReferenceBackend(*host))), ToleranceOf(c.format));
  }
}

// A workspace with room for a few heads' inputs, or for some rows.
TEST(CudaMatMulHeads, AreTheSameBitsInAsManyPartsAsTheWorkspaceNeeds) {
  const HeadsCase c{40, 9, 16, 24, 16, 24, WeightFormat::kBF16};
  CudaUnderTest cuda;
  const std::vector<float> want = HeadProducts(*cuda.backend, c).Run(0, c.rows);
  for (const int64_t max_inputs : {16, 170}) {
    ExpectSameBits(HeadProducts(*cuda.backend, c, 9, max_inputs).Run(0, c.rows), want);
  }
}

// Rows in the numbers of products are read where they lie, if they lie well, else gathered; outputs
// in them are the others rounded.
TEST(CudaMatMulHeads, OfRoundedRowsAreTheSameBits) {
  for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kF16}) {
    const DType dtype = format == WeightFormat::kF16 ? DType::kF16 : DType::kBF16;
    for (const int64_t inputs : {64, 40}) {
      const HeadsCase c{3, 21, inputs, 20, inputs, 20, format};
      const int64_t x_cols = 3 * inputs, out_cols = 3 * 20;
      CudaUnderTest cuda;
      HeadProducts products(*cuda.backend, c);
      const std::vector<float> x = NormalFloats(c.rows * x_cols, 7);
      std::vector<std::byte> rounded_x = AsBytes(x, dtype);
      std::vector<float> want(c.rows * out_cols);
      products.Multiply(View(x, c.rows, x_cols, x_cols), View(want, c.rows, out_cols, out_cols));
      std::vector<std::byte> got(want.size() * 2);
      products.Multiply(ConstMatrixView(rounded_x.data(), dtype, c.rows, x_cols, x_cols),
                        MatrixView(got.data(), dtype, c.rows, out_cols, out_cols));
      EXPECT_TRUE(got == AsBytes(want, dtype)) << WeightFormatName(format) << " " << inputs;
    }
  }
}

TEST(CudaMatMulHeads, OfARowDoNotDependOnTheOthers) {
  const HeadsCase c{4, 60, 48, 40, 50, 42, WeightFormat::kBF16};
  CudaUnderTest cuda;
  HeadProducts heads(*cuda.backend, c);
  const std::vector<float> all = heads.Run(0, 60);
  const int64_t cols = static_cast<int64_t>(all.size()) / 60;
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {31, 3}, {20, 40}}) {
    ExpectSameBits(heads.Run(first, count),
                   {all.begin() + first * cols, all.begin() + (first + count) * cols});
  }
}

TEST(CudaMatMulHeadsDeathTest, OfAFormatThatHasNoKernelAreABug) {
  for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kMxfp4}) {
    EXPECT_DEATH(cuda::HeadLinearKernel(format, 1), "kBF16");
    EXPECT_DEATH(cuda::HeadGemmKernel(format), "kBF16");
  }
}

}  // namespace
}  // namespace bulkhead
