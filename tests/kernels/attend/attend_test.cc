// AppendKv and Attend of every variant: near the oracle in double, bit for bit the ordered
// reference, and the same in any pieces, blocks and company. Unwritten and left-behind memory holds
// NaN.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "memory/fp8.h"
#include "tests/kernels/paged_step.h"
#include "tests/kernels/tolerance.h"
#include "tests/kernels/variants.h"

namespace bulkhead {
namespace {

constexpr uint32_t kSeed = 20;

// Tokens of several sequences at once: one more token after contexts of many lengths, and pieces of
// a prompt that cross the border of a chunk, start a sequence, or are empty.
std::vector<Piece> MixedStep() {
  return {{0, 0, 1},     {1, 14, 15},   {2, 15, 16},   {3, 16, 17}, {4, 254, 255}, {5, 255, 256},
          {6, 256, 257}, {7, 699, 700}, {8, 240, 277}, {9, 0, 33},  {10, 5, 5},    {11, 500, 502}};
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

std::vector<AttentionCase> FloatCases() {
  const auto groups = AttentionCase::Groups;
  std::vector<int32_t> crowd(70, 0);  // more heads for one KV head than a unit aims at
  return {
      {groups(4, 2), 4, 16, KvFormat::kF32, 16, 0},
      {groups(4, 2), 4, 64, KvFormat::kBF16, 64, 0},
      {groups(2, 7), 2, 32, KvFormat::kF16, 32, 24},
      {groups(1, 8), 1, 24, KvFormat::kBF16, 16, 300},
      {groups(3, 2), 3, 8, KvFormat::kF32, 256, 1},
      {groups(1, 1), 1, 64, KvFormat::kF16, 128, 300},
      {groups(2, 4), 2, 48, KvFormat::kBF16, 16, 24},
      {{0, 0, 1, 1, 1}, 2, 16, KvFormat::kF32, 64, 24},
      {{0, 2, 2}, 3, 10, KvFormat::kBF16, 32, 0},
      {crowd, 1, 16, KvFormat::kBF16, 16, 0},
      {groups(1, 9), 1, 80, KvFormat::kF32, 32, 300},
      {{}, 0, 16, KvFormat::kF32, 16, 0},
      {groups(2, 2), 2, 128, KvFormat::kBF16, 64, 0},
      {groups(1, 2), 1, 256, KvFormat::kBF16, 16, 0},
      {groups(2, 2), 2, 32, KvFormat::kF32, 16, 24, 0.5f},
      {groups(1, 9), 1, 24, KvFormat::kBF16, 32, 0, 0.5f},
      {groups(2, 4), 2, 40, KvFormat::kBF16, 16, 0, 0, true},
      {groups(1, 3), 1, 16, KvFormat::kF32, 32, 24, 0.5f, true},
      {groups(2, 2), 2, 32, KvFormat::kF32, 16, 0, 0, false, 64},
      {groups(1, 5), 1, 24, KvFormat::kBF16, 32, 0, 0, false, 250},
      // Latent caches: a value is the first columns of its key.
      {groups(1, 8), 1, 40, KvFormat::kF32, 32, 0, 0, false, 0, 32},
      {groups(1, 4), 1, 144, KvFormat::kBF16, 16, 0, 0, false, 0, 128},
      {groups(1, 2), 1, 144, KvFormat::kF32, 256, 0, 0, false, 0, 128},
      {groups(1, 3), 1, 22, KvFormat::kF16, 64, 300, 0.5f, false, 0, 14},
      {groups(2, 3), 2, 18, KvFormat::kBF16, 16, 24, 0, false, 0, 16},
      {crowd, 1, 24, KvFormat::kBF16, 16, 0, 0, false, 0, 16},
  };
}

// Few and many query heads for a KV head; heads of whole groups of 32 columns, of one and a half,
// and of less.
std::vector<AttentionCase> QuantizedCases(KvFormat format) {
  const auto groups = AttentionCase::Groups;
  return {
      {groups(2, 2), 2, 64, format, 64, 0},
      {groups(1, 1), 1, 128, format, 16, 300},
      {groups(1, 3), 1, 96, format, 32, 24},
      {groups(1, 8), 1, 32, format, 128, 0},
      {groups(2, 4), 2, 48, format, 16, 24},
      {{0, 2, 2}, 3, 10, format, 32, 0},
      {groups(1, 5), 1, 24, format, 256, 0},
      {groups(1, 9), 1, 80, format, 16, 300},
      {groups(1, 7), 1, 64, format, 16, 1},
      {groups(1, 12), 1, 64, format, 32, 0},
      {groups(1, 6), 1, 160, format, 16, 24},
      {groups(1, 5), 1, 40, format, 16, 0, 0, false, 0, 32},
      {groups(1, 9), 1, 74, format, 64, 300, 0, false, 0, 64},
  };
}

std::vector<AttentionCase> MixedCases() {
  std::vector<AttentionCase> cases = FloatCases();
  for (const KvFormat format : {KvFormat::kInt8, KvFormat::kInt4, KvFormat::kFP8}) {
    for (const AttentionCase& c : QuantizedCases(format)) cases.push_back(c);
  }
  return cases;
}

// The backend attends in `dtype`.
using Script = std::vector<float> (*)(Backend&, int i, AttentionDType dtype);

enum class Oracle { kDouble, kOrdered };

// What a reference backend says is computed once for all variants.
const std::vector<float>& Memo(Script run, int i, Oracle oracle, AttentionDType dtype) {
  using Key = std::tuple<Script, int, Oracle, AttentionDType>;
  static auto& memo = *new std::map<Key, std::vector<float>>;
  const auto [place, is_new] = memo.try_emplace(Key{run, i, oracle, dtype});
  if (is_new) {
    const std::unique_ptr<Device> device = NewHostDevice(0);
    const std::unique_ptr<Backend> backend =
        oracle == Oracle::kDouble ? NewReferenceBackend(*device)
                                  : NewOrderedBackend(*device, ActivationDType::kF32, dtype);
    place->second = run(*backend, i, dtype);
  }
  return place->second;
}

class Attention : public testing::TestWithParam<Variant> {
 protected:
  Attention() : device_(NewHostDevice(0)), backend_(GetParam().Make(*device_)) {}

  static AttentionDType Dtype() { return GetParam().attention; }
  static const std::vector<float>& Ordered(Script run, int i) {
    return Memo(run, i, Oracle::kOrdered, Dtype());
  }

  // The variant must be near the oracle and equal to ordered.
  void Compare(Script run, int i) {
    if (GetParam().isa.empty()) {
      ExpectNear(Ordered(run, i), Memo(run, i, Oracle::kDouble, AttentionDType::kF32),
                 Dtype() != AttentionDType::kF32 ? kAttendInBf16Tolerance : kAttendTolerance);
    } else {
      ExpectSameBits(run(*backend_, i, Dtype()), Ordered(run, i));
    }
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
};

std::vector<float> RunMixedCase(Backend& backend, int i, AttentionDType dtype) {
  AttentionCase c = MixedCases()[i];
  c.dtype = dtype;
  return RunMixedStep(backend, c);
}

TEST_P(Attention, DecodesAndPrefillsLikeTheOracles) {
  const int count = static_cast<int>(MixedCases().size());
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(testing::Message() << MixedCases()[i]);
    Compare(RunMixedCase, i);
  }
}

constexpr int kPromptTokens = 300;

std::vector<AttentionCase> PieceCases() {
  std::vector<AttentionCase> cases;
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kBF16, KvFormat::kF16, KvFormat::kInt8,
                                KvFormat::kInt4, KvFormat::kFP8}) {
    cases.push_back({{0, 0, 1}, 2, 16, format, 16, 0});
    cases.push_back({{0, 0, 0}, 1, 24, format, 16, 270});
    cases.push_back({{0, 0, 1}, 2, 16, format, 16, 0, 0, true, 130});
    cases.push_back({{0, 0, 0}, 1, 24, format, 16, 0, 0, false, 0, 16});
  }
  return cases;
}

// The first sequence, of `tokens`, cut at multiples of `piece`.
std::vector<float> InPieces(PagedSequences& sequences, int tokens, int piece) {
  std::vector<float> out;
  for (int begin = 0; begin < tokens; begin += piece) {
    const std::vector<float> part =
        sequences.AppendAndAttend({{0, begin, std::min(begin + piece, tokens)}});
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

std::vector<float> RunInPieces(Backend& backend, const AttentionCase& c, int piece) {
  PagedSequences sequences(backend, c, {kPromptTokens}, kSeed);
  return InPieces(sequences, kPromptTokens, piece);
}

std::vector<float> RunAtOnce(Backend& backend, int i, AttentionDType dtype) {
  AttentionCase c = PieceCases()[i];
  c.dtype = dtype;
  return RunInPieces(backend, c, kPromptTokens);
}

TEST_P(Attention, APromptIsTheSameInAnyPiecesAndBlocks) {
  const int count = static_cast<int>(PieceCases().size());
  for (int i = 0; i < count; ++i) {
    const std::vector<float>& expected = Ordered(RunAtOnce, i);
    for (const int block_tokens : {16, 64}) {
      AttentionCase c = PieceCases()[i];
      c.block_tokens = block_tokens;
      c.dtype = Dtype();
      for (const int piece : {1, 100, kPromptTokens}) {
        SCOPED_TRACE(testing::Message() << c << ", pieces of " << piece);
        ExpectSameBits(RunInPieces(*backend_, c, piece), expected);
      }
    }
  }
}

// Few KV heads and a long context: several threads share it, and join their parts in order.
std::vector<AttentionCase> LongCases() {
  const auto groups = AttentionCase::Groups;
  return {{groups(1, 2), 1, 32, KvFormat::kBF16, 32, 0},
          {groups(3, 2), 3, 32, KvFormat::kBF16, 32, 0},
          {groups(1, 2), 1, 32, KvFormat::kInt8, 32, 0},
          {groups(1, 2), 1, 32, KvFormat::kInt4, 32, 0},
          {groups(1, 2), 1, 32, KvFormat::kFP8, 32, 0, 0, true},
          {groups(1, 2), 1, 32, KvFormat::kBF16, 32, 0, 0, true},
          {groups(1, 2), 1, 32, KvFormat::kBF16, 32, 0, 0, true, 700},
          {groups(1, 2), 1, 40, KvFormat::kBF16, 32, 0, 0, false, 0, 32}};
}

std::vector<float> RunLongContext(Backend& backend, int i, AttentionDType dtype) {
  AttentionCase c = LongCases()[i];
  c.dtype = dtype;
  PagedSequences sequences(backend, c, {2100, 1500}, kSeed);
  sequences.Append({{0, 0, 2097}});
  sequences.Append({{1, 0, 1499}});
  std::vector<float> out = sequences.AppendAndAttend({{0, 2097, 2098}});
  const std::vector<float> more = sequences.AppendAndAttend({{0, 2098, 2100}, {1, 1499, 1500}});
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

TEST_P(Attention, ALongContextMayBeSharedByThreads) {
  const int count = static_cast<int>(LongCases().size());
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(testing::Message() << LongCases()[i]);
    Compare(RunLongContext, i);
  }
}

TEST_P(Attention, ARowDoesNotDependOnTheOthers) {
  AttentionCase c{AttentionCase::Groups(2, 2), 2, 32, KvFormat::kBF16, 32, 0};
  c.dtype = Dtype();
  const std::vector<int> lengths = {300, 40, 513};
  const auto row_of = [&](const std::vector<Piece>& step, size_t token) {
    PagedSequences sequences(*backend_, c, lengths, kSeed);
    sequences.Append({{0, 0, 299}});
    sequences.Append({{2, 0, 450}});
    const std::vector<float> out = sequences.AppendAndAttend(step);
    const int64_t width = int64_t{c.num_heads()} * c.head_dim;
    return std::vector<float>(out.begin() + token * width, out.begin() + (token + 1) * width);
  };
  const std::vector<float> alone = row_of({{0, 299, 300}}, 0);
  ExpectSameBits(row_of({{1, 0, 40}, {0, 299, 300}, {2, 450, 513}}, 40), alone);
  ExpectSameBits(row_of({{2, 450, 451}, {0, 299, 300}}, 1), alone);
}

// An infinite value in column 0 shows there, in the rows that see it, and nowhere else. In pieces:
// units of few rows, and of many.
TEST_P(Attention, AnInfiniteValueIsSeenByItsOwnRowsAlone) {
  constexpr int kTokens = 300;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const AttentionCase& shape :
       std::vector<AttentionCase>{{AttentionCase::Groups(1, 3), 1, 32, KvFormat::kBF16, 16, 0},
                                  {AttentionCase::Groups(1, 3), 1, 32, KvFormat::kBF16, 16, 70},
                                  {AttentionCase::Groups(1, 2), 1, 48, KvFormat::kBF16, 32, 0},
                                  {AttentionCase::Groups(1, 9), 1, 24, KvFormat::kBF16, 64, 200}}) {
    for (const int piece : {7, kTokens}) {
      SCOPED_TRACE(testing::Message() << shape << ", pieces of " << piece);
      AttentionCase c = shape;
      c.dtype = Dtype();
      const auto attend = [&](float value) {
        PagedSequences sequences(*backend_, c, {kTokens}, kSeed);
        for (const int position : {9, 263}) sequences.SetValues(0, position, value);
        return InPieces(sequences, kTokens, piece);
      };
      const std::vector<float> finite = attend(0.5f);
      const std::vector<float> infinite = attend(kInfinity);
      for (size_t i = 0; i < finite.size(); ++i) {
        const int position = static_cast<int>(i) / (c.num_heads() * c.head_dim);
        const int column = static_cast<int>(i) % c.head_dim;
        const auto sees = [&](int at) {
          return at <= position && (c.window == 0 || at > position - c.window);
        };
        const bool shows = column == 0 && (sees(9) || sees(263));
        ASSERT_EQ(infinite[i], shows ? kInfinity : finite[i])
            << "position " << position << ", column " << column;
      }
    }
  }
}

// Values, and products with them, around the smallest normal number, which products in bf16 take
// for 0.
std::vector<AttentionCase> TinyCases() {
  const auto groups = AttentionCase::Groups;
  return {{groups(1, 3), 1, 32, KvFormat::kBF16, 16, 0},
          {groups(2, 2), 2, 48, KvFormat::kBF16, 16, 0}};
}

std::vector<float> RunTinyValues(Backend& backend, int i, AttentionDType dtype) {
  AttentionCase c = TinyCases()[i];
  c.dtype = dtype;
  std::vector<float> out;
  for (const int piece : {1, 40}) {
    PagedSequences sequences(backend, c, {40}, kSeed);
    sequences.ScaleValues(0x1p-125f);
    const std::vector<float> part = InPieces(sequences, 40, piece);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

TEST_P(Attention, TinyValuesHaveTheSameBitsAndLeaveTheModeOfTheThread) {
  const unsigned mode = _mm_getcsr();
  for (int i = 0; i < static_cast<int>(TinyCases().size()); ++i) {
    SCOPED_TRACE(testing::Message() << TinyCases()[i]);
    ExpectSameBits(RunTinyValues(*backend_, i, Dtype()), Ordered(RunTinyValues, i));
  }
  constexpr unsigned kFlags = 0x3F;  // exceptions that have been
  EXPECT_EQ(_mm_getcsr() & ~kFlags, mode & ~kFlags);
}

TEST_P(Attention, EveryCodeOfAnFp8CacheIsReadAsItsNumber) {
  std::vector<float> numbers;
  for (int code = 0; code < 256; ++code) numbers.push_back(F32OfE4m3(static_cast<uint8_t>(code)));
  for (const float scale : {1.0F, 0.25F}) {
    std::vector<float> value = numbers;
    for (float& x : value) x *= scale;
    const std::vector<float> out = AttendToOneToken(*backend_, value, scale);
    for (int code = 0; code < 256; ++code) {
      if (std::isnan(numbers[code])) {
        EXPECT_TRUE(std::isnan(out[code])) << code;
      } else {
        EXPECT_EQ(out[code], value[code]) << code;
      }
    }
  }
}

TEST_P(Attention, AStepWithoutTokensDoesNothing) {
  const AttentionCase c{AttentionCase::Groups(2, 2), 2, 16, KvFormat::kF32, 16, 0};
  PagedSequences sequences(*backend_, c, {20}, kSeed);
  EXPECT_TRUE(sequences.AppendAndAttend({}).empty());
  EXPECT_TRUE(sequences.AppendAndAttend({{0, 3, 3}}).empty());
}

INSTANTIATE_TEST_SUITE_P(Variants, Attention, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });
INSTANTIATE_TEST_SUITE_P(Pairs, Attention, testing::ValuesIn(PairVariants()),
                         [](const auto& info) { return info.param.Name(); });
INSTANTIATE_TEST_SUITE_P(Tiles, Attention, testing::ValuesIn(TileVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
