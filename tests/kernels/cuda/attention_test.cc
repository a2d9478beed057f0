// AppendKv and Attend on CUDA: near the reference in double, the same bits in every order of
// threads, in any company, and with whatever lies in memory that nobody wrote.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cpu/number_format.h"
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
// tiles and blocks, or are empty; the border of a split lies at 512.
std::vector<Piece> MixedStep() {
  return {{0, 0, 1},     {1, 14, 15}, {2, 63, 64}, {3, 64, 65}, {4, 511, 512}, {5, 512, 513},
          {6, 600, 601}, {7, 40, 77}, {8, 0, 33},  {9, 5, 5},   {10, 126, 130}};
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

std::vector<AttentionCase> Cases() {
  const auto groups = AttentionCase::Groups;
  const std::vector<int32_t> crowd(35, 0);  // more heads for one KV head than a block takes
  std::vector<AttentionCase> cases;
  for (const KvFormat format :
       {KvFormat::kBF16, KvFormat::kF16, KvFormat::kInt8, KvFormat::kInt4}) {
    cases.push_back({groups(2, 2), 2, 16, format, 16, 0});
    cases.push_back({groups(1, 7), 1, 32, format, 64, 24});
    cases.push_back({{0, 0, 1, 1, 1}, 3, 24, format, 256, 0});  // nobody reads the last
  }
  cases.push_back({groups(1, 9), 1, 80, KvFormat::kF16, 16, 300});
  cases.push_back({groups(1, 4), 1, 128, KvFormat::kBF16, 32, 0});
  cases.push_back({groups(1, 2), 1, 104, KvFormat::kInt8, 16, 300});
  cases.push_back({groups(3, 1), 3, 8, KvFormat::kBF16, 128, 1});
  cases.push_back({crowd, 1, 40, KvFormat::kBF16, 16, 0});
  cases.push_back({groups(1, 1), 1, 256, KvFormat::kBF16, 16, 0});
  cases.push_back({groups(1, 1), 1, 136, KvFormat::kInt4, 16, 0});
  return cases;
}

class CudaAttention : public testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, CudaAttention, testing::ValuesIn(Cases()));

TEST_P(CudaAttention, IsThatOfTheReferenceInEverySchedule) {
  const AttentionCase& c = GetParam();
  const std::vector<float> out =
      OnAllSchedules([&](Backend& backend) { return RunMixedStep(backend, c); }, c.head_dim > 32);
  EXPECT_LT(RelativeError(out, OfReference(c)), ToleranceOf(c.format));
}

TEST(CudaAttentionRows, ForProductsAreTheOthersRounded) {
  const AttentionCase c{AttentionCase::Groups(2, 2), 2, 40, KvFormat::kBF16, 16, 0};
  CudaUnderTest cuda;
  const auto run = [&](DType dtype) {
    PagedSequences sequences(*cuda.backend, c, {300, 40}, kSeed);
    sequences.Append({{0, 0, 299}});
    return sequences.AppendAndAttend({{0, 299, 300}, {1, 0, 40}}, dtype);
  };
  std::vector<float> want = run(DType::kF32);
  for (float& x : want) x = F32OfBf16(Bf16OfF32(x));
  ExpectSameBits(run(DType::kBF16), want);
}

TEST(CudaAttentionRows, DoNotDependOnTheOthers) {
  const AttentionCase c{AttentionCase::Groups(2, 2), 2, 32, KvFormat::kBF16, 32, 0};
  CudaUnderTest cuda;
  const auto rows_of = [&](const std::vector<Piece>& step, int first, int count) {
    PagedSequences sequences(*cuda.backend, c, {300, 40, 513}, kSeed);
    sequences.Append({{0, 0, 299}});
    sequences.Append({{2, 0, 450}});
    const std::vector<float> out = sequences.AppendAndAttend(step);
    const int width = c.num_heads() * c.head_dim;
    return std::vector<float>(out.begin() + first * width, out.begin() + (first + count) * width);
  };
  const std::vector<float> one = rows_of({{0, 299, 300}}, 0, 1);
  ExpectSameBits(rows_of({{1, 0, 40}, {0, 299, 300}, {2, 450, 513}}, 40, 1), one);
  const std::vector<float> many = rows_of({{2, 450, 513}}, 0, 63);
  ExpectSameBits(rows_of({{1, 0, 3}, {2, 450, 513}}, 3, 63), many);
}

// More splits than blocks, so that a block takes several, of a crowd of unequal lengths.
TEST(CudaAttentionRows, OfACrowdAreThoseOfEachAlone) {
  for (const int window : {0, 530}) {
    const AttentionCase c{AttentionCase::Groups(2, 2), 2, 16, KvFormat::kBF16, 16, window};
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
    const size_t width = c.num_heads() * c.head_dim;
    CudaUnderTest cuda;
    for (const size_t seq : {0, 2, 6, 17}) {
      ExpectSameBits({crowd.begin() + seq * width, crowd.begin() + (seq + 1) * width},
                     rows_of(*cuda.backend, {all[seq]}));
    }
  }
}

TEST(CudaAttentionRows, OfAStepWithoutTokensAreNone) {
  const AttentionCase c{AttentionCase::Groups(2, 2), 2, 16, KvFormat::kBF16, 16, 0};
  CudaUnderTest cuda;
  PagedSequences sequences(*cuda.backend, c, {20}, kSeed);
  EXPECT_TRUE(sequences.AppendAndAttend({}).empty());
  EXPECT_TRUE(sequences.AppendAndAttend({{0, 3, 3}}).empty());
}

// The cache is the reference's to the byte, but for the bits of a NaN; what was not written stays.
void MakeNansAlike(KvFormat format, std::vector<std::byte>& arena) {
  auto* const numbers = reinterpret_cast<uint16_t*>(arena.data());
  const int infinity = format == KvFormat::kF16 ? 0x7C00 : 0x7F80;
  for (size_t i = 0; i < arena.size() / 2; ++i) {
    if (numbers[i] != 0xFFFF && (numbers[i] & 0x7FFF) > infinity) numbers[i] = 0x7FFF;
  }
}

class CudaAppendKv : public testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, CudaAppendKv, testing::ValuesIn(Cases()));

TEST_P(CudaAppendKv, WritesTheBytesOfTheReference) {
  const AttentionCase& c = GetParam();
  constexpr int kTokens = 4;
  const KvGeometry geometry{1, c.num_kv_heads, c.head_dim, c.block_tokens, c.format};
  const int64_t width = int64_t{c.num_heads() + 2 * c.num_kv_heads} * c.head_dim;
  std::vector<float> qkv = RandomFloats(kTokens * width, 3);
  for (int64_t i = 0; i < width; ++i) qkv[width + i] *= 1e5F;  // beyond f16
  qkv[3 * width - 1] = NAN;
  for (int64_t i = 0; i < width; ++i) qkv[3 * width + i] = 0.25F;  // no range
  const std::vector<int32_t> seq_begin = {0, 3, 4}, seq_slot = {1, 0}, token_seq = {0, 0, 0, 1};
  const std::vector<int32_t> position = {c.block_tokens - 1, c.block_tokens, c.block_tokens + 1, 0};
  const std::vector<int32_t> tables = {3, 0, 1, 2};
  const StepIndex index{2,
                        kTokens,
                        seq_begin.data(),
                        seq_slot.data(),
                        position.data(),
                        token_seq.data(),
                        tables.data(),
                        2};
  const HeadLayout heads{c.num_heads(), c.num_kv_heads, c.head_dim, c.head_to_kv.data()};
  const auto run = [&](Backend& backend) {
    std::vector<std::byte> arena(4 * geometry.LayerBlockBytes(), std::byte{0xFF});
    backend.AppendKv(index, heads,
                     ConstMatrixView(reinterpret_cast<const std::byte*>(qkv.data()), DType::kF32,
                                     kTokens, width),
                     {geometry, arena.data()});
    EXPECT_TRUE(backend.device().Synchronize().ok());
    if (!IsQuantized(c.format)) MakeNansAlike(c.format, arena);
    return arena;
  };
  const std::unique_ptr<Device> host = NewHostDevice(0);
  const std::vector<std::byte> want = run(*NewReferenceBackend(*host));
  for (CudaUnderTest& cuda : AllSchedules()) EXPECT_TRUE(run(*cuda.backend) == want);
}

}  // namespace
}  // namespace bulkhead
