// Attend on CUDA: near the reference in double, the same bits in every order of
// threads, in any company, and with whatever lies in memory that nobody wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/attend/cuda.h"
#include "kernels/cuda/cuda_sizes.h"
#include "kernels/simd/number_format.h"
#include "memory/fp8.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/paged_step.h"
#include "tests/kernels/variants.h"
#include "tests/support/golden.h"

namespace bulkhead {
namespace {

constexpr uint32_t kSeed = 20;
// norm(got - want) / norm(want): queries and weights are rounded to 8 (bf16) or 11 bits.
constexpr double kBf16Tolerance = 4e-3;
constexpr double kF16Tolerance = 6e-4;

double ToleranceOf(KvFormat format) {
  return format == KvFormat::kF16 ? kF16Tolerance : kBf16Tolerance;
}

// One more token after contexts of many lengths; pieces of prompts that start a sequence, cross
// tiles and blocks, or are empty; borders of splits lie at 256 and 512, one within a piece.
std::vector<Piece> MixedStep() {
  return {{0, 0, 1},     {1, 14, 15}, {2, 63, 64}, {3, 64, 65}, {4, 511, 512},  {5, 512, 513},
          {6, 600, 601}, {7, 40, 77}, {8, 0, 33},  {9, 5, 5},   {10, 126, 130}, {11, 254, 259}};
}

std::vector<float> RunMixedStep(Backend& backend, const AttentionCase& c) {
  std::vector<int> lengths;
  std::vector<Piece> before;
  for (const Piece& piece : MixedStep()) {
    lengths.push_back(std::max(piece.end, 1));
    before.push_back({piece.seq, 0, piece.begin});
  }
  PagedSequences sequences(backend, c, lengths, kSeed);
  for (const Piece& piece : before) sequences.Append({piece});
  return sequences.AppendAndAttend(MixedStep());
}

std::vector<float> OfReference(const AttentionCase& c) {
  const std::unique_ptr<Device> host = NewHostDevice(0);
  return RunMixedStep(*NewReferenceBackend(*host), c);
}

class CudaAttentionCase : public testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, CudaAttentionCase, testing::ValuesIn(CudaAttentionCases()));

TEST_P(CudaAttentionCase, IsThatOfTheReferenceInEverySchedule) {
  const AttentionCase& c = GetParam();
  const std::vector<float> out =
      OnAllSchedules([&](Backend& backend) { return RunMixedStep(backend, c); }, c.head_dim > 32);
  EXPECT_LT(RelativeError(out, OfReference(c)), ToleranceOf(c.format));
}

TEST(CudaAttentionRows, EveryCodeOfAnFp8CacheIsReadAsItsNumber) {
  std::vector<float> numbers;
  for (int code = 0; code < 256; ++code) numbers.push_back(F32OfE4m3(static_cast<uint8_t>(code)));
  std::vector<float> value = numbers;
  for (float& x : value) x *= 0.25F;
  for (CudaUnderTest& cuda : AllSchedules()) {
    const std::vector<float> out = AttendToOneToken(*cuda.backend, value, 0.25F);
    for (int code = 0; code < 256; ++code) {
      if (std::isnan(numbers[code])) {
        EXPECT_TRUE(std::isnan(out[code])) << code;
      } else {
        EXPECT_EQ(out[code], value[code]) << code;
      }
    }
  }
}

// Of heads with keys and values, of wide ones, and of a latent cache.
class CudaAttentionRowsOf : public testing::TestWithParam<AttentionCase> {
 protected:
  CudaUnderTest cuda_;
  const size_t width_ = GetParam().num_heads() *
                        (GetParam().value_dim > 0 ? GetParam().value_dim : GetParam().head_dim);
};
INSTANTIATE_TEST_SUITE_P(
    Cases, CudaAttentionRowsOf,
    testing::Values(AttentionCase{AttentionCase::Groups(2, 2), 2, 40, KvFormat::kBF16, 16, 0},
                    AttentionCase{AttentionCase::Groups(1, 2), 1, 288, KvFormat::kInt8, 16, 0},
                    AttentionCase{AttentionCase::Groups(1, 18), 1, 40, KvFormat::kBF16, 32, 0, 0,
                                  false, 0, 32}));

TEST_P(CudaAttentionRowsOf, ForProductsAreTheOthersRounded) {
  const auto run = [&](DType dtype) {
    PagedSequences sequences(*cuda_.backend, GetParam(), {300, 40}, kSeed);
    sequences.Append({{0, 0, 299}});
    return sequences.AppendAndAttend({{0, 299, 300}, {1, 0, 40}}, dtype);
  };
  std::vector<float> want = run(DType::kF32);
  for (float& x : want) x = F32OfBf16(Bf16OfF32(x));
  ExpectSameBits(run(DType::kBF16), want);
}

TEST_P(CudaAttentionRowsOf, DoNotDependOnTheOthers) {
  const auto rows_of = [&](const std::vector<Piece>& step, int first, int count) {
    PagedSequences sequences(*cuda_.backend, GetParam(), {300, 40, 513}, kSeed);
    sequences.Append({{0, 0, 299}});
    sequences.Append({{2, 0, 450}});
    const std::vector<float> out = sequences.AppendAndAttend(step);
    return std::vector<float>(out.begin() + first * width_, out.begin() + (first + count) * width_);
  };
  const std::vector<float> one = rows_of({{0, 299, 300}}, 0, 1);
  ExpectSameBits(rows_of({{1, 0, 40}, {0, 299, 300}, {2, 450, 513}}, 40, 1), one);
  const std::vector<float> many = rows_of({{2, 450, 513}}, 0, 63);
  ExpectSameBits(rows_of({{1, 0, 3}, {2, 450, 513}}, 3, 63), many);
}

// More splits than blocks, so that a block takes several, of a crowd of unequal lengths.
TEST(CudaAttentionRows, OfACrowdAreThoseOfEachAlone) {
  const std::vector<int32_t> groups = AttentionCase::Groups(2, 2);
  for (const AttentionCase& c :
       {AttentionCase{groups, 2, 16, KvFormat::kBF16, 16, 0},
        AttentionCase{groups, 2, 16, KvFormat::kBF16, 16, 530}, CudaLatentCases().front()}) {
    const std::vector<int> lengths = {700, 3,  1200, 512, 513, 40,  1,   90, 1024,
                                      64,  65, 600,  20,  30,  511, 300, 7,  1100};
    std::vector<Piece> before, all;
    for (int seq = 0; seq < static_cast<int>(lengths.size()); ++seq) {
      before.push_back({seq, 0, lengths[seq] - 1});
      all.push_back({seq, lengths[seq] - 1, lengths[seq]});
    }
    const auto rows_of = [&](Backend& backend, const std::vector<Piece>& step) {
      PagedSequences sequences(backend, c, lengths, kSeed);
      sequences.Append(before);
      return sequences.AppendAndAttend(step);
    };
    const std::vector<float> crowd =
        OnAllSchedules([&](Backend& backend) { return rows_of(backend, all); }, true);
    const size_t width = c.num_heads() * (c.value_dim > 0 ? c.value_dim : c.head_dim);
    CudaUnderTest cuda;
    for (const size_t seq : {0, 2, 6, 17}) {
      ExpectSameBits({crowd.begin() + seq * width, crowd.begin() + (seq + 1) * width},
                     rows_of(*cuda.backend, {all[seq]}));
    }
  }
}

// Splits beyond a warp's lanes, of one token and of several, some behind a window's begin.
TEST(CudaAttentionRows, BehindALongContextAreThoseOfTheReference) {
  constexpr int kTokens = 20'000;
  for (const int window : {0, 18'000}) {
    const AttentionCase c{AttentionCase::Groups(1, 2), 1, 8, KvFormat::kBF16, 256, window};
    const auto run = [&](Backend& backend) {
      PagedSequences sequences(backend, c, {kTokens, kTokens}, kSeed);
      sequences.Append({{0, 0, kTokens - 1}});
      sequences.Append({{1, 0, kTokens - 3}});
      return sequences.AppendAndAttend({{0, kTokens - 1, kTokens}, {1, kTokens - 3, kTokens}});
    };
    const std::unique_ptr<Device> host = NewHostDevice(0);
    const std::vector<float> want = run(*NewReferenceBackend(*host));
    EXPECT_LT(RelativeError(OnAllSchedules(run, true), want), kBf16Tolerance);
  }
}

// CUDA with memory for the sums of fewer splits than a step may have.
class WithFewPartRows final : public CudaBackend {
 public:
  WithFewPartRows(CudaUnderTest& cuda, int64_t part_rows)
      : CudaBackend(*cuda.device, *cuda.driver, nullptr),
        part_rows_(part_rows),
        attention_(*cuda.device, *cuda.driver) {}

  void SetWorkspace(std::byte* workspace, const StepLimits& limits,
                    const HeadLayout& heads) override {
    CudaBackend::SetWorkspace(workspace, limits, heads);
    BumpAllocator counted;
    const CudaAttentionScratch sizes(limits, heads, counted);
    memory_.resize(counted.used_bytes() + 64);
    void* aligned = memory_.data();
    size_t space = memory_.size();
    std::align(64, space - 64, aligned, space);
    BumpAllocator allocator(static_cast<std::byte*>(aligned));
    CudaAttentionScratch scratch(limits, heads, allocator);
    BH_CHECK(part_rows_ < scratch.splits.part_rows);
    scratch.splits.part_rows = part_rows_;
    attention_.SetScratch(scratch, heads, {});
  }
  void BeginStep(const StepIndex& host_index) override {
    attention_.BeginStep(host_index);
    rounds = attention_.list().rounds().size();
  }
  void Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
              const KvLayerView& kv, const AttentionOptions& options, MatrixView out) override {
    attention_.Attend(index, heads, qkv, kv, options, out);
  }

  size_t rounds = 0;

 private:
  const int64_t part_rows_;
  std::vector<std::byte> memory_;
  CudaAttention attention_;
};

TEST_P(CudaAttentionRowsOf, AreTheSameInManyRounds) {
  const std::vector<Piece> step = {{0, 699, 700}, {1, 250, 257}, {2, 600, 621}, {3, 590, 601}};
  const auto run = [&](Backend& backend) {
    PagedSequences sequences(backend, GetParam(), {700, 257, 621, 601}, kSeed);
    sequences.Append({{0, 0, 699}, {1, 0, 250}, {2, 0, 600}, {3, 0, 590}});
    return sequences.AppendAndAttend(step);
  };
  WithFewPartRows few(cuda_, 21 * 3 + 13);  // 14 rows, 63 rows, 33 rows
  ExpectSameBits(run(few), run(*cuda_.backend));
  EXPECT_EQ(few.rounds, 3U);
}

TEST(CudaAttentionRows, OfAStepWithoutTokensAreNone) {
  const AttentionCase c{AttentionCase::Groups(2, 2), 2, 16, KvFormat::kBF16, 16, 0};
  CudaUnderTest cuda;
  PagedSequences sequences(*cuda.backend, c, {20}, kSeed);
  EXPECT_TRUE(sequences.AppendAndAttend({}).empty());
  EXPECT_TRUE(sequences.AppendAndAttend({{0, 3, 3}}).empty());
}

}  // namespace
}  // namespace bulkhead
