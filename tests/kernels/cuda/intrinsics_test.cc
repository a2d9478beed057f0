// Every word that kernels are written in against a plain reference of what it is said to do.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/simd/number_format.h"
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/cuda/intrinsic_probes.h"

namespace bulkhead {
namespace {

using Words = std::vector<uint32_t>;

Words RandomWords(int count, uint32_t seed = 1) {
  std::mt19937 generator(seed);
  Words words(count);
  for (uint32_t& word : words) word = generator();
  return words;
}

Words BitsOf(const std::vector<float>& numbers) {
  Words words(numbers.size());
  std::memcpy(words.data(), numbers.data(), 4 * numbers.size());
  return words;
}

std::vector<float> F32sOf(const Words& words) {
  std::vector<float> numbers(words.size());
  std::memcpy(numbers.data(), words.data(), 4 * words.size());
  return numbers;
}

// What the probe makes of `in`; the same on every device.
Words RunProbe(const cuda::Probe& probe, const Words& in, int out_words, int threads = 32) {
  Words result;
  for (const auto& driver : DevicesUnderTest()) {
    DeviceArrays arrays(*driver);
    const cuda::ProbeParameters parameters{arrays.Put(in), arrays.New<uint32_t>(out_words)};
    Enqueue(*driver, probe, {.block = {threads, 1, 1}, .shared_bytes = 1024}, parameters);
    const Words out = arrays.Get(parameters.out, out_words);
    if (result.empty()) result = out;
    EXPECT_EQ(out, result) << probe.kernel.name;
  }
  return result;
}

TEST(Words, Shuffles) {
  const Words in = RandomWords(32);
  const Words shuffled = RunProbe(cuda::ShuffleProbe(), in, 32);
  const Words crossed = RunProbe(cuda::ShuffleXorProbe(), in, 32);
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(shuffled[lane], in[7 * lane % 32]);
    EXPECT_EQ(crossed[lane], in[lane ^ 5]);
  }
}

TEST(Words, BallotsNameLanesAndAreCounted) {
  const Words in = RandomWords(32);
  const Words out = RunProbe(cuda::BallotProbe(), in, 64);
  uint32_t odd = 0;
  for (int lane = 0; lane < 32; ++lane) odd |= in[lane] % 2 << lane;
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[2 * lane], odd);
    EXPECT_EQ(out[2 * lane + 1], static_cast<uint32_t>(std::popcount(odd)));
  }
}

// The 16-bit number i of an array of words.
uint32_t Half(const Words& words, int i) { return words[i / 2] >> (i % 2 * 16) & 0xFFFF; }

TEST(Words, TilesAreSpreadOverTheLanes) {
  const Words in = RandomWords(128);
  const Words out = RunProbe(cuda::LoadTilesProbe(), in, 128);
  const Words transposed = RunProbe(cuda::LoadTilesTransposedProbe(), in, 128);
  for (int tile = 0; tile < 4; ++tile) {
    for (int row = 0; row < 8; ++row) {
      for (int column = 0; column < 8; ++column) {
        const uint32_t number = Half(in, tile * 64 + row * 8 + column);
        // Four lanes to a row, two numbers each.
        const auto in_lane = [&](int r, int c) { return 2 * (4 * (4 * r + c / 2) + tile) + c % 2; };
        EXPECT_EQ(Half(out, in_lane(row, column)), number);
        EXPECT_EQ(Half(transposed, in_lane(column, row)), number);
      }
    }
  }
}

TEST(Words, ATileTransposedTwiceIsItself) {
  const Words in = RandomWords(32);
  const Words once = RunProbe(cuda::TransposeTileProbe(), in, 32);
  for (int row = 0; row < 8; ++row) {
    for (int column = 0; column < 8; ++column) {
      EXPECT_EQ(Half(once, 8 * column + row), Half(in, 8 * row + column));
    }
  }
  EXPECT_EQ(RunProbe(cuda::TransposeTileProbe(), once, 32), in);
}

void ExpectProduct(const cuda::Probe& probe, uint16_t (*narrow)(float), float (*widen)(uint16_t)) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  double a[16][16], b[16][8], c[16][8];
  Words in(320);
  const auto put = [&](int word, int half, float x) {
    const uint16_t bits = narrow(x);
    in[word] |= uint32_t{bits} << (16 * half);
    return double{widen(bits)};
  };
  // Fragments as the PTX manual draws them for m16n8k16.
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, j = lane % 4;
    for (int i = 0; i < 8; ++i) {
      const int row = (i < 2 || (i >= 4 && i < 6)) ? g : g + 8;
      const int column = 2 * j + (i & 1) + (i >= 4 ? 8 : 0);
      a[row][column] = put(10 * lane + i / 2, i % 2, normal(generator));
    }
    for (int i = 0; i < 4; ++i) {
      const int row = 2 * j + (i & 1) + (i >= 2 ? 8 : 0);
      b[row][g] = put(10 * lane + 4 + i / 2, i % 2, normal(generator));
    }
    for (int i = 0; i < 4; ++i) {
      const float x = normal(generator);
      c[i < 2 ? g : g + 8][2 * j + (i & 1)] = x;
      in[10 * lane + 6 + i] = BitsOf({x})[0];
    }
  }
  const std::vector<float> out = F32sOf(RunProbe(probe, in, 128));
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i < 2 ? 0 : 8), column = 2 * (lane % 4) + (i & 1);
      double want = c[row][column];
      for (int k = 0; k < 16; ++k) want += a[row][k] * b[k][column];
      EXPECT_NEAR(out[4 * lane + i], want, 1e-5) << row << " " << column;
    }
  }
}

TEST(Words, ProductsOfTiles) {
  ExpectProduct(cuda::MultiplyBf16Probe(), Bf16OfF32, F32OfBf16);
  ExpectProduct(cuda::MultiplyF16Probe(), F16OfF32, F32OfF16);
}

TEST(Words, CopiesThatAreNotValidAreZeroes) {
  const Words in = RandomWords(64);
  const Words out = RunProbe(cuda::CopyProbe(), in, 128);
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(out[i], i % 8 < 4 ? in[i / 8 * 4 + i % 4] : 0U) << i;
  }
}

std::vector<float> OddNumbers() {
  const float infinity = std::numeric_limits<float>::infinity();
  // Halfway cases of bf16 and f16, the ends of f16, subnormals of f16.
  return {
      0.0F,       -0.0F,    1.0F,      -1.0F,    1.00390625F, 1.01171875F, 1.00048828125F, 65504.0F,
      65519.996F, 65520.0F, -65520.0F, 1e30F,    -1e30F,      infinity,    -infinity,      6.1e-5F,
      5.96e-8F,   2.98e-8F, 2.99e-8F,  -4.4e-8F, 3.1415927F,  1e-30F,      2049.0F,        2051.0F,
      257.0F,     259.0F,   0.1F,      -0.1F,    12345.678F,  -7.7e-6F,    1.5258789e-5F,  33.3F};
}

TEST(Words, PairsRoundToNearestEven) {
  std::vector<float> in;
  for (const float x : OddNumbers()) in.insert(in.end(), {x, -2.0F * x});
  const Words out = RunProbe(cuda::PairProbe(), BitsOf(in), 64);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(out[i / 2 * 2] >> (i % 2 * 16) & 0xFFFF, Bf16OfF32(in[i])) << in[i];
    EXPECT_EQ(out[i / 2 * 2 + 1] >> (i % 2 * 16) & 0xFFFF, F16OfF32(in[i])) << in[i];
  }
}

TEST(Words, NumbersOf16BitsAreWidenedExactly) {
  Words in;
  for (const float x : OddNumbers()) in.push_back(uint32_t{Bf16OfF32(x)} << 16 | F16OfF32(x));
  const std::vector<float> out = F32sOf(RunProbe(cuda::WidenProbe(), in, 128));
  for (int i = 0; i < 32; ++i) {
    const auto as_f16 = static_cast<uint16_t>(in[i]), as_bf16 = static_cast<uint16_t>(in[i] >> 16);
    EXPECT_EQ(out[4 * i], F32OfBf16(as_f16));
    EXPECT_EQ(out[4 * i + 1], F32OfF16(as_f16));
    EXPECT_EQ(out[4 * i + 2], F32OfBf16(as_bf16));
    EXPECT_THAT(out[4 * i + 3], testing::NanSensitiveFloatEq(F32OfF16(as_bf16)));
  }
}

TEST(Words, BytesAreSelectedByTheDigitsOfTheSelector) {
  Words in = RandomWords(96);
  for (int lane = 0; lane < 32; ++lane) in[3 * lane + 2] &= 0x7777;
  const Words out = RunProbe(cuda::SelectBytesProbe(), in, 32);
  for (int lane = 0; lane < 32; ++lane) {
    uint8_t bytes[8], selected[4];
    std::memcpy(bytes, &in[3 * lane], 8);
    for (int i = 0; i < 4; ++i) selected[i] = bytes[in[3 * lane + 2] >> (4 * i) & 7];
    uint32_t want;
    std::memcpy(&want, selected, 4);
    EXPECT_EQ(out[lane], want);
  }
}

TEST(Words, BitsAndSumsOfPairs) {
  Words in = RandomWords(96);
  // Between 2 and 32 in size, so that only the last step rounds; then what is subnormal.
  for (uint32_t& word : in) word = (word & 0x81FF81FFU) | 0x40004000U;
  in[0] = 0x80400001;
  in[1] = 0x7E807E80;  // 2^126
  in[2] = 0x80008000;  // -0
  const Words out = RunProbe(cuda::BitsAndSumsProbe(), in, 64);
  EXPECT_EQ(out[1], 0xBF003C00U);  // -2^-1 and 2^-7
  for (int lane = 0; lane < 32; ++lane) {
    const uint32_t* const abc = &in[3 * lane];
    EXPECT_EQ(out[2 * lane], (abc[0] & abc[1]) ^ abc[2]);
    for (const int shift : {0, 16}) {
      const auto number = [&](int i) { return F32OfBf16(static_cast<uint16_t>(abc[i] >> shift)); };
      const float want = number(0) * number(1) + number(2);
      EXPECT_EQ(static_cast<uint16_t>(out[2 * lane + 1] >> shift), Bf16OfF32(want));
    }
  }
}

TEST(Words, PowersOfTwo) {
  std::vector<float> in;
  for (int i = 0; i < 32; ++i) in.push_back(static_cast<float>(i - 20) * 1.37F);
  in[0] = -std::numeric_limits<float>::infinity();
  in[1] = -1e30F;
  in[2] = 0.0F;
  const std::vector<float> out = F32sOf(RunProbe(cuda::Exp2Probe(), BitsOf(in), 32));
  for (int i = 0; i < 32; ++i) EXPECT_NEAR(out[i], std::exp2(in[i]), 3e-7 * std::exp2(in[i]));
  EXPECT_EQ(out[2], 1.0F);
}

TEST(Words, StreamsAreLoadedAsTheyAre) {
  const Words in = RandomWords(128);
  EXPECT_EQ(RunProbe(cuda::LoadStreamProbe(), in, 128), in);
}

TEST(Words, ABarrierOfTheBlockIsOneOfAllItsWarps) {
  const Words in = RandomWords(256);
  EXPECT_EQ(RunProbe(cuda::SyncBlockProbe(), in, 256, 256), Words(in.rbegin(), in.rend()));
}

TEST(Words, CountsAreOfTheBlockAndCountersGiveEveryThreadItsOwnPlace) {
  Words in(256), odd;
  for (uint32_t i = 0; i < 256; ++i) {
    in[i] = i % 5 == 2 ? 2 * i + 1 : 2 * i;
    if (in[i] % 2 == 1) odd.push_back(in[i]);
  }
  for (const auto& driver : DevicesUnderTest()) {
    DeviceArrays arrays(*driver);
    const auto size = static_cast<int64_t>(256 + odd.size());
    const cuda::ProbeParameters parameters{arrays.Put(in), arrays.New<uint32_t>(size)};
    Enqueue(*driver, cuda::CountProbe(), {.block = {256, 1, 1}, .shared_bytes = 16}, parameters);
    Words out = arrays.Get(parameters.out, size);
    const auto n = static_cast<uint32_t>(odd.size());
    EXPECT_EQ(Words(out.begin(), out.begin() + 256),
              Words(256, n + 1000 * (256 - n) + 1000000 * (256 + n)));
    EXPECT_THAT(Words(out.begin() + 256, out.end()), testing::UnorderedElementsAreArray(odd));
  }
}

TEST(Words, BitsOfNumbersAreThoseThatMadeThem) {
  const Words in = BitsOf(OddNumbers());
  ASSERT_GE(in.size(), 32U);
  const Words first(in.begin(), in.begin() + 32);
  EXPECT_EQ(RunProbe(cuda::BitsOfF32Probe(), first, 32), first);
}

}  // namespace
}  // namespace bulkhead
