// MatMul gives the bits of a plain loop over std::fma, whatever the instruction set, the number of
// rows, the threads and the slices.
#include <cmath>
#include <cstring>

#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

constexpr float kUntouched = 12345.0f;

struct Case {
  int64_t rows;
  int64_t outputs;
  int64_t inputs;
  std::vector<int64_t> k_borders;
  DType dtype = DType::kF32;
  int64_t padding = 0;  // numbers between the rows of x and of out
};

// Uneven borders; with several slices some are empty.
std::vector<int64_t> Borders(int64_t inputs, int num_slices, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<int64_t> borders = {0, inputs};
  for (int i = 1; i < num_slices; ++i) {
    borders.push_back(std::uniform_int_distribution<int64_t>(0, inputs)(generator));
  }
  std::sort(borders.begin(), borders.end());
  return borders;
}

std::vector<float> Expected(const Case& c, const std::vector<float>& x,
                            const std::vector<float>& weight) {
  const int64_t stride = c.outputs + c.padding;
  std::vector<float> out(c.rows * stride, kUntouched);
  for (int64_t t = 0; t < c.rows; ++t) {
    for (int64_t n = 0; n < c.outputs; ++n) {
      std::vector<float> sums;
      for (size_t slice = 0; slice + 1 < c.k_borders.size(); ++slice) {
        float sum = c.k_borders[slice] == c.k_borders[slice + 1] ? -0.0f : 0.0f;
        for (int64_t k = c.k_borders[slice]; k < c.k_borders[slice + 1]; ++k) {
          sum = std::fma(x[t * (c.inputs + c.padding) + k],
                         Rounded(weight[n * c.inputs + k], c.dtype), sum);
        }
        sums.push_back(sum);
      }
      while (sums.size() > 1) {
        std::vector<float> joined;
        for (size_t i = 0; i < sums.size(); i += 2) joined.push_back(sums[i] + sums[i + 1]);
        sums = joined;
      }
      out[t * stride + n] = sums[0];
    }
  }
  return out;
}

class MatMulTest : public ::testing::TestWithParam<Isa> {
 protected:
  static void ExpectBits(const Case& c, std::vector<int> thread_counts) {
    const std::vector<float> weight = NormalFloats(c.outputs * c.inputs, 1);
    std::vector<float> x = NormalFloats(c.rows * (c.inputs + c.padding), 2);
    const std::vector<float> expected = Expected(c, x, weight);
    for (const int threads : thread_counts) {
      CpuFixture cpu(GetParam(), threads);
      Buffer memory;
      const Linear linear = cpu.Pack({c.outputs, c.inputs, WeightFormatOf(c.dtype), c.k_borders},
                                     weight, DType::kF32, memory);
      std::vector<float> out(expected.size(), kUntouched);
      cpu.backend().MatMul(ViewOf(x, c.rows, c.inputs, c.inputs + c.padding), linear,
                           ViewOf(out, c.rows, c.outputs, c.outputs + c.padding));
      ASSERT_EQ(0, std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)))
          << DTypeName(c.dtype) << " rows " << c.rows << " outputs " << c.outputs << " inputs "
          << c.inputs << " slices " << c.k_borders.size() - 1 << " threads " << threads;
    }
  }
};

TEST_P(MatMulTest, EqualsThePlainChainForAnyRows) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 2, 3, 5, 7, 12, 13, 16, 31, 64, 100}) {
      ExpectBits({rows, 65, 70, {0, 70}, dtype}, {1, 2});
    }
  }
}

TEST_P(MatMulTest, EqualsThePlainChainForOddShapes) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t outputs : {1, 7, 17, 31, 33, 389}) {
      for (const int64_t inputs : {1, 7, 17, 31, 33, 389}) {
        ExpectBits({1, outputs, inputs, {0, inputs}, dtype}, {2});
        ExpectBits({13, outputs, inputs, {0, inputs}, dtype, 3}, {2});
      }
    }
  }
}

// A weight in bf16 is in pairs, which no block parts.
TEST_P(MatMulTest, EqualsThePlainChainForSlicesOfOddBlocks) {
  for (const int64_t rows : {1, 5, 13}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      ExpectBits({rows, 33, 1023, {0, 1023}, dtype}, {1});
      ExpectBits({rows, 33, 2047, {0, 1023, 2047}, dtype}, {1});
      ExpectBits({rows, 33, 2047, {0, 1, 2047}, dtype}, {2});
    }
  }
}

TEST_P(MatMulTest, JoinsSlicesAsABalancedTree) {
  uint32_t seed = 0;
  for (const int num_slices : {1, 2, 4, 8}) {
    for (const int64_t inputs : {3, 64, 389}) {
      for (const int64_t rows : {1, 3, 5, 13, 50}) {
        const std::vector<int64_t> borders = Borders(inputs, num_slices, ++seed);
        ExpectBits({rows, 33, inputs, borders, DType::kBF16, 1}, {1, 2, 5});
      }
    }
  }
}

TEST_P(MatMulTest, TakesAnEmptySliceAsMinusZero) {
  for (const int64_t rows : {1, 6, 20}) {
    ExpectBits({rows, 40, 9, {0, 0, 0, 4, 4, 9, 9, 9, 9}}, {1, 3});
    ExpectBits({rows, 40, 9, {0, 0, 0, 0, 0, 0, 0, 0, 9}}, {1, 3});
    ExpectBits({rows, 40, 9, {0, 9, 9}}, {1, 3});
  }
}

// An empty slice must not turn a sum of -0.0 into +0.0, nor a full one start from -0.0.
TEST_P(MatMulTest, KeepsTheSignOfZero) {
  for (const int64_t rows : {1, 6}) {
    CpuFixture cpu(GetParam(), 2);
    Buffer memory;
    const std::vector<float> weight = {1e-30f, 1.0f};
    const Linear linear =
        cpu.Pack({1, 2, WeightFormat::kF32, {0, 1, 2, 2, 2}}, weight, DType::kF32, memory);
    std::vector<float> x(rows * 2);
    for (int64_t t = 0; t < rows; ++t) x[t * 2] = -1e-30f, x[t * 2 + 1] = -0.0f;
    std::vector<float> out(rows, kUntouched);
    cpu.backend().MatMul(ViewOf(x, rows, 2, 2), linear, ViewOf(out, rows, 1, 1));
    // Slice 0 rounds to -0.0; slice 1 is fma(-0.0, 1, +0.0) = +0.0; their sum is +0.0.
    for (const float value : out) EXPECT_FALSE(std::signbit(value));
    const Linear first =
        cpu.Pack({1, 2, WeightFormat::kF32, {0, 2, 2}}, {1.0f, 1e-30f}, DType::kF32, memory);
    for (int64_t t = 0; t < rows; ++t) x[t * 2] = 0.0f, x[t * 2 + 1] = -1e-30f;
    cpu.backend().MatMul(ViewOf(x, rows, 2, 2), first, ViewOf(out, rows, 1, 1));
    // The chain ends in -0.0 by underflow, and an empty slice leaves it so.
    for (const float value : out) EXPECT_TRUE(std::signbit(value) && value == 0.0f);
  }
}

TEST_P(MatMulTest, BlocksOfInputsContinueTheChain) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ExpectBits({5, 33, 1100, {0, 1100}, dtype}, {2});
    ExpectBits({49, 300, 1030, {0, 530, 1030}, dtype, 5}, {1});
    // With one slice as long as there is room for, and of several lengths.
    for (const int64_t inputs : {1024, 1025, 3584, 3585, 7361}) {
      ExpectBits({48, 40, inputs, {0, inputs}, dtype}, {1});
    }
    ExpectBits({7, 40, 8191, {0, 8191}, dtype}, {2});
  }
}

// At the limit of what is multiplied panel by panel, and past it.
TEST_P(MatMulTest, SlicesOfManyInputsJoinAsThoseOfFew) {
  for (const int64_t inputs : {1024, 1025, 3584, 3585}) {
    const std::vector<int64_t> borders = Borders(inputs, 8, 1);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      ExpectBits({48, 300, inputs, borders, dtype}, {1});
    }
  }
}

TEST_P(MatMulTest, GivesTheSameBitsForAnyThreads) {
  ExpectBits({1, 389, 129, {0, 129}, DType::kBF16}, {1, 2, 3, 5});
  ExpectBits({100, 389, 129, {0, 17, 64, 100, 129}, DType::kBF16}, {1, 2, 3, 5});
  ExpectBits({100, 20, 400, {0, 400}, DType::kF32}, {1, 2, 3, 5});
  ExpectBits({2, 50, 300, {0, 17, 64, 64, 300}, DType::kF16}, {1, 2, 3, 5});
}

TEST_P(MatMulTest, OnNoRowsOrColumnsDoesNothing) {
  CpuFixture cpu(GetParam(), 2);
  Buffer memory;
  std::vector<float> none;
  std::vector<float> out(8, kUntouched);
  const Linear no_outputs = cpu.Pack({0, 4, WeightFormat::kF32, {0, 4}}, {}, DType::kF32, memory);
  std::vector<float> x(8, 1.0f);
  cpu.backend().MatMul(ViewOf(x, 2, 4, 4), no_outputs, ViewOf(out, 2, 0, 4));
  const Linear no_inputs = cpu.Pack({4, 0, WeightFormat::kBF16, {0, 0}}, {}, DType::kF32, memory);
  cpu.backend().MatMul(ViewOf(x, 2, 0, 4), no_inputs, ViewOf(out, 2, 4, 4));
  const Linear some =
      cpu.Pack({4, 4, WeightFormat::kF32, {0, 4}}, NormalFloats(16, 3), DType::kF32, memory);
  cpu.backend().MatMul(ViewOf(none, 0, 4, 4), some, ViewOf(none, 0, 4, 4));
  for (const float value : out) EXPECT_EQ(value, kUntouched);
}

// The caller's own floating point mode neither enters a product nor is lost.
TEST_P(MatMulTest, IgnoresTheCallersFloatingPointMode) {
  CpuFixture cpu(GetParam(), 1);
  Buffer memory;
  const Linear linear = cpu.Pack({1, 1, WeightFormat::kF32, {0, 1}}, {1.0f}, DType::kF32, memory);
  std::vector<float> x = {1e-40f};
  std::vector<float> out = {0.0f};
  const unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | 0x8040);  // flush denormals, take them for zero
  cpu.backend().MatMul(ViewOf(x, 1, 1, 1), linear, ViewOf(out, 1, 1, 1));
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before);
  EXPECT_EQ(after & 0x8040, 0x8040u);
  EXPECT_EQ(0, std::memcmp(out.data(), x.data(), sizeof(float)));
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, MatMulTest, ::testing::ValuesIn(PresentIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace bulkhead
