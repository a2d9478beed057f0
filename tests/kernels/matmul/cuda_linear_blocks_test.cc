// Products of few tokens, whose depth is in parts: right, and a row's bits those of any other step,
// however many warps have shared the parts.
#include "kernels/matmul/linear_blocks.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/cuda/packed_weight.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

constexpr double kTolerance = 5e-3;  // norm(got - want) / norm(want)
constexpr int64_t kH100Shared = 227 << 10;
constexpr int64_t kSmallShared = 99 << 10;
constexpr WeightFormat kFormats[] = {WeightFormat::kBF16,  WeightFormat::kInt8,
                                     WeightFormat::kInt4,  WeightFormat::kMxfp4,
                                     WeightFormat::kNvfp4, WeightFormat::kFp8};

ProductCase CaseOf(WeightFormat format, int64_t rows, int64_t cols) {
  if (!IsQuantized(format)) return {{rows, cols, format, {0, cols}, {}}};
  return {{rows, cols, format, {0, cols}, {128, 0, 0, StoredScalesOf(format)}}, true};
}

std::vector<float> Product(Backend& backend, const ProductCase& c, int rows) {
  std::vector<float> x = NormalFloats(rows * c.shape.cols, 7);
  std::vector<float> out(rows * c.shape.rows, NAN);
  Packed packed(backend, c, rows);
  backend.MatMul(ViewOf(x, rows, c.shape.cols, c.shape.cols), packed.linear,
                 ViewOf(out, rows, c.shape.rows, c.shape.rows));
  packed.Wait();
  return out;
}

TEST(CudaLinearBlocks, HavePartsThatFollowFromTheWeightsShape) {
  for (const WeightFormat format : kFormats) {
    for (const int tiles : {1, 2, 4}) {
      const auto parts = [&](int64_t rows, int64_t depth, int64_t shared) {
        return cuda::LinearBlocksOf(format, rows, depth, tiles, shared).parts;
      };
      EXPECT_EQ(parts(4096, 14336, kH100Shared), 16);
      EXPECT_EQ(parts(28672, 4096, kH100Shared), 8);
      EXPECT_EQ(parts(cuda::kRowsOfMany, 4096, kH100Shared), 8);
      EXPECT_EQ(parts(65536, 128, kH100Shared), 4);
      EXPECT_EQ(parts(4096, 14336, kSmallShared), 8);
    }
  }
}

TEST(CudaLinearBlocks, FitTheSharedMemoryAndTheKernel) {
  for (const int64_t shared : {kSmallShared, int64_t{163} << 10, kH100Shared}) {
    for (const WeightFormat format : kFormats) {
      for (const int64_t depth : {64, 4096}) {
        const int parts = cuda::LinearBlocksOf(format, 4096, depth, 1, shared).parts;
        for (const int tiles : {1, 2, 4}) {
          const cuda::LinearBlocks blocks =
              cuda::LinearBlocksOf(format, 4096, depth, tiles, shared);
          EXPECT_LE(blocks.shared_bytes, shared);
          EXPECT_LE(blocks.threads, tiles == 4 ? 256 : 512);
          const int warps = blocks.threads / 32;
          EXPECT_TRUE(warps == parts || (tiles > 1 && 2 * warps == parts)) << warps;
        }
      }
    }
  }
}

TEST(CudaLinearBlocks, AreWideWhereAMultiprocessorThenReadsLess) {
  const auto width = [](WeightFormat format, int64_t rows, int64_t depth, int tokens,
                        int64_t shared = kH100Shared) {
    const int tiles = tokens <= 8 ? 1 : tokens <= 16 ? 2 : 4;
    const int token_blocks = (tokens + 8 * tiles - 1) / (8 * tiles);
    const cuda::LinearBlocks narrow = cuda::LinearBlocksOf(format, rows, depth, tiles, shared);
    const cuda::LinearBlocks blocks =
        cuda::WiderLinearBlocksOf(narrow, format, rows, depth, tiles, token_blocks, shared, 132);
    EXPECT_EQ(blocks.parts, narrow.parts) << "a row's bits";
    EXPECT_LE(blocks.shared_bytes, shared);
    return blocks.width;
  };
  using enum cuda::LinearWidth;
  for (const WeightFormat format : kQuantizedFormats) {
    EXPECT_EQ(width(format, 28672, 4096, 8), kNarrow) << "weights are most of what is read";
    EXPECT_EQ(width(format, 28672, 4096, 16), kWide);
    EXPECT_EQ(width(format, 28672, 4096, 32), kWide);
    EXPECT_EQ(width(format, 28672, 4096, 64), kWide);
    EXPECT_EQ(width(format, 5632, 4096, 17), kWide) << "88 blocks for 132 multiprocessors";
    EXPECT_EQ(width(format, 4096, 14336, 32), kNarrow) << "a warp has two parts";
    EXPECT_EQ(width(format, 4000, 512, 32), kNarrow) << "there are blocks for no more";
    EXPECT_EQ(width(format, 28672, 4096, 32, kSmallShared), kNarrow);
  }
  EXPECT_EQ(width(WeightFormat::kBF16, 28672, 4096, 32), kNarrow);
}

TEST(CudaLinearBlocks, GiveTheProductsOfTheReference) {
  const std::unique_ptr<Device> host = NewHostDevice(0);
  for (const WeightFormat format : kFormats) {
    // Of 16 parts the last ones are empty or shorter; 300 rows are in wide blocks.
    for (const auto& [rows, cols] : {std::pair(40, 1700), {40, 2100}, {300, 900}}) {
      const ProductCase c = CaseOf(format, rows, cols);
      const std::vector<float> want = Product(*NewReferenceBackend(*host), c, 20);
      const std::vector<float> got =
          OnAllSchedules([&](Backend& backend) { return Product(backend, c, 20); }, true);
      EXPECT_LT(RelativeError(got, want), kTolerance) << c;
    }
  }
}

TEST(CudaLinearBlocks, ARowsBitsAreThoseOfAnyOtherStep) {
  for (const WeightFormat format : kFormats) {
    // 4, 8 and 16 parts; 300 rows are in wide blocks but of one and eight tokens.
    for (const auto& [rows, cols] :
         {std::pair(40, 100), {40, 900}, {40, 1700}, {300, 100}, {300, 900}}) {
      const ProductCase c = CaseOf(format, rows, cols);
      const std::vector<float> want =
          OnAllSchedules([&](Backend& backend) { return Product(backend, c, 64); }, true);
      for (const int tokens : {1, 8, 13, 30}) {
        const std::vector<float> got =
            OnAllSchedules([&](Backend& backend) { return Product(backend, c, tokens); }, true);
        ExpectSameBits(got, {want.begin(), want.begin() + static_cast<int64_t>(got.size())});
      }
    }
  }
}

}  // namespace
}  // namespace bulkhead
