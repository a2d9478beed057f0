// Products of 9 to 64 tokens by warpgroups: right, those of other blocks and steps to the bit, and
// chosen where a multiprocessor then reads less.
#include <gtest/gtest.h>

#include "kernels/matmul/warpgroup_blocks.h"
#include "kernels/packing/cuda_packing.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/cuda/packed_weight.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

constexpr double kTolerance = 5e-3;  // norm(got - want) / norm(want)
// Of the same numbers, added up in the same order but within a tensor instruction.
constexpr double kSameOrderTolerance = 1e-5;
constexpr int64_t kShared = 227 << 10;
constexpr int64_t kRoom = int64_t{8} << 20;  // for sums of parts
constexpr int kMaxTokens = 64;

ProductCase CaseOf(WeightFormat format, int64_t rows, std::vector<int64_t> slices, int group) {
  const int64_t cols = slices.back();
  return {{rows, cols, format, std::move(slices), {group, 0, 0, StoredScalesOf(format)}}, true};
}

std::vector<ProductCase> Cases() {
  std::vector<ProductCase> cases;
  for (const WeightFormat format : kQuantizedFormats) {
    cases.push_back(CaseOf(format, 70, {0, 100}, 32));    // 4 parts, of which 2 are empty
    cases.push_back(CaseOf(format, 290, {0, 900}, 128));  // 8, the last shorter
    cases.push_back(CaseOf(format, 40, {0, 2100}, 160));  // 16; cells end within steps
    cases.push_back(CaseOf(format, 31, {0, 64, 160, 192, 320}, 32));
  }
  return cases;
}

// x [kMaxTokens][cols].
std::vector<float> Inputs(const ProductCase& c) {
  return NormalFloats(kMaxTokens * c.shape.cols, 7);
}

// Of up to 8 tokens at a time, which are not multiplied by warpgroups.
std::vector<float> BySteps(Backend& backend, const ProductCase& c, int tokens_of_step) {
  std::vector<float> x = Inputs(c);
  std::vector<float> out(kMaxTokens * c.shape.rows, NAN);
  Packed packed(backend, c, tokens_of_step);
  for (int token = 0; token < kMaxTokens; token += tokens_of_step) {
    backend.MatMul(ViewOf(x, kMaxTokens, c.shape.cols, c.shape.cols).Rows(token, tokens_of_step),
                   packed.linear,
                   ViewOf(out, kMaxTokens, c.shape.rows, c.shape.rows).Rows(token, tokens_of_step));
  }
  packed.Wait();
  return out;
}

// Of the first tokens.
std::vector<float> ByWarpgroups(CudaUnderTest& cuda, const ProductCase& c, int tokens,
                                const cuda::WarpgroupBlocks& blocks) {
  const Packed packed(*cuda.backend, c, tokens);
  const PackedLayout layout(c.shape);
  const std::vector<float> x = Inputs(c);
  std::vector<uint16_t> rounded(tokens * layout.depth(), 0);
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t i = 0; i < c.shape.cols; ++i) {
      rounded[token * layout.depth() + i] = Bf16OfF32(x[token * c.shape.cols + i]);
    }
  }
  DeviceArrays arrays(*cuda.driver);
  const int64_t rows = c.shape.rows;
  const int parts = cuda::LinearBlocksOf(c.shape.format, rows, layout.depth(), 4, kShared).parts;
  const LaunchShape shape = blocks.Launch(rows, parts);
  cuda::WarpgroupLinearParameters p;
  p.product = {arrays.Put(rounded),
               tokens,
               layout.Parameters(c.shape, packed.linear.packed),
               {arrays.New<float>(tokens * rows), rows},
               parts};
  if (blocks.in_parts) p.part_out = arrays.New<float>(parts / 2 * tokens * rows);
  Enqueue(*cuda.driver, *cuda::LinearWarpgroupKernel(c.shape.format, blocks.tokens), shape, p);
  if (blocks.in_parts) {
    Enqueue(*cuda.driver, cuda::AddPartsKernel(),
            {.grid = {tokens, static_cast<int>((rows + 255) / 256), 1},
             .block = {cuda::kAddPartsThreads, 1, 1}},
            {p.part_out, parts / 2, tokens, static_cast<int>(rows), p.product.out});
  }
  return arrays.Get(p.product.out.data, tokens * rows);
}

class CudaWarpgroups : public testing::TestWithParam<ProductCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, CudaWarpgroups, testing::ValuesIn(Cases()));

TEST_P(CudaWarpgroups, GiveTheProductsOfTheReferenceInAnyBlocks) {
  const ProductCase& c = GetParam();
  if (!cuda::LinearWarpgroupKernel(c.shape.format, 16).has_value()) GTEST_SKIP();
  const std::unique_ptr<Device> host = NewHostDevice(0);
  const std::vector<float> want = BySteps(*NewReferenceBackend(*host), c, kMaxTokens);
  std::vector<float> first;  // product of all tokens
  for (std::unique_ptr<CudaDriver>& driver : DevicesUnderTest(true, true, 9)) {
    CudaUnderTest cuda(std::move(driver));
    const std::vector<float> in_order = BySteps(*cuda.backend, c, 8);
    for (const int tokens : {64, 30, 9}) {
      for (const int warps : {4, 8}) {
        if (warps == 8 && c.shape.rows <= 128) continue;
        for (const bool in_parts : {false, true}) {
          const cuda::WarpgroupStages stages(c.shape.format, tokens <= 16   ? 16
                                                             : tokens <= 32 ? 32
                                                                            : 64);
          const std::vector<float> got = ByWarpgroups(
              cuda, c, tokens, {stages.tokens, warps, in_parts, stages.Bytes(warps, in_parts)});
          const auto of_tokens = [&](const std::vector<float>& all) {
            return std::vector<float>(all.begin(), all.begin() + static_cast<int64_t>(got.size()));
          };
          if (first.empty()) first = got;
          ExpectSameBits(got, of_tokens(first));
          EXPECT_LT(RelativeError(got, of_tokens(want)), kTolerance) << c;
          EXPECT_LT(RelativeError(got, of_tokens(in_order)), kSameOrderTolerance) << c;
        }
      }
    }
  }
}

TEST(CudaWarpgroupBlocks, FitTheSharedMemory) {
  for (const WeightFormat format : kQuantizedFormats) {
    for (const int tokens : {16, 32, 64}) {
      EXPECT_LE(cuda::WarpgroupStages(format, tokens).Bytes(8, false), kShared);
    }
  }
}

// What of `linear` the busiest of 132 multiprocessors reads.
int64_t BytesOfLinear(WeightFormat format, int64_t rows, int64_t depth, int tokens) {
  const int tiles = tokens <= 16 ? 2 : 4;
  const int token_blocks = (tokens + 8 * tiles - 1) / (8 * tiles);
  const cuda::LinearBlocks blocks =
      cuda::WiderLinearBlocksOf(cuda::LinearBlocksOf(format, rows, depth, tiles, kShared), format,
                                rows, depth, tiles, token_blocks, kShared, 132);
  return cuda::BytesRead(blocks, format, rows, depth, tiles, token_blocks, 132);
}
cuda::WarpgroupBlocks BlocksOf(WeightFormat format, int64_t rows, int64_t depth, int tokens,
                               int64_t room = kRoom, int64_t shared = kShared) {
  const int parts = cuda::LinearBlocksOf(format, rows, depth, 4, kShared).parts;
  return cuda::WarpgroupBlocksOf(format, rows, depth, parts, tokens, room, shared, 132);
}

TEST(CudaWarpgroupBlocks, AreChosenByWhatTheBusiestMultiprocessorReads) {
  for (const WeightFormat format : kQuantizedFormats) {
    for (const int tokens : {9, 16, 33, 64}) {
      const cuda::WarpgroupBlocks gate_up = BlocksOf(format, 28672, 4096, tokens);
      EXPECT_EQ(gate_up.tokens, tokens <= 16 ? 16 : 64);
      EXPECT_EQ(gate_up.warps, 8) << "a block for each of 112 multiprocessors";
      EXPECT_FALSE(gate_up.in_parts);
      EXPECT_LT(gate_up.bytes_read, BytesOfLinear(format, 28672, 4096, tokens));
      EXPECT_TRUE(BlocksOf(format, 4096, 14336, tokens).in_parts);
      EXPECT_FALSE(BlocksOf(format, 4096, 14336, tokens, /*room=*/0).in_parts);
    }
    EXPECT_LT(BlocksOf(format, 4096, 14336, 64).bytes_read,
              BytesOfLinear(format, 4096, 14336, 64) / 2);
    EXPECT_GT(BlocksOf(format, 1024, 1024, 16).bytes_read, BytesOfLinear(format, 1024, 1024, 16));
    EXPECT_GT(BlocksOf(format, 28672, 4096, 64, kRoom, 48 << 10).bytes_read, int64_t{1} << 40)
        << "of a GPU without the shared memory there are none";
  }
}

}  // namespace
}  // namespace bulkhead
