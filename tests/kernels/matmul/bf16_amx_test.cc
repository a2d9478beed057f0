// MatMul in bf16 in AMX's tiles: the emulated instruction computes what Intel's manual says, and
// products have the bits of the promised chain, whatever the number of rows, the threads and the
// slices; and what is refused where a CPU has no such tiles. Where it has, the same of its own.
#include "kernels/matmul/bf16_amx.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/arithmetic.h"
#include "kernels/matmul/bf16_check.h"
#include "kernels/matmul/cpu.h"
#include "tests/kernels/products_support.h"
#include "tests/kernels/variants.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Case {
  int64_t rows;
  int64_t outputs;
  std::vector<int64_t> k_borders;  // the last one is K
  int64_t inputs() const { return k_borders.back(); }
};

// Numbers of bf16 near 1, whose sums cancel; with `extremes` also large and denormal ones, whose
// products are denormal or infinite.
std::vector<float> Numbers(int64_t count, uint32_t seed, bool extremes) {
  std::vector<float> numbers = NormalFloats(count, seed);
  std::mt19937 random(seed);
  for (float& number : numbers) {
    if (extremes) number = std::ldexp(number, static_cast<int>(random() % 130) - 120);
    if (extremes && random() % 256 == 0) number = std::ldexp(number, 190);
    number = Rounded(number, DType::kBF16);
  }
  return numbers;
}

// ---- TDPBF16PS as its "Operation" in Intel's manual, without the CPU's own mode

float Flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
}

// One element of the sums, of 16 pairs.
float Instruction(float sum, const float* src1, const float* src2) {
  float temp1[2] = {0, 0};
  for (int k = 0; k < 16; ++k) {
    for (int i = 0; i < 2; ++i) {
      temp1[i] =
          Flushed(std::fma(Flushed(src1[2 * k + i]), Flushed(src2[2 * k + i]), Flushed(temp1[i])));
    }
  }
  const float tmp = Flushed(temp1[0] + temp1[1]);
  return Flushed(Flushed(sum) + tmp);
}

// A product with one slice.
std::vector<float> ByInstructions(const Case& c, const std::vector<float>& weight,
                                  const std::vector<float>& x) {
  std::vector<float> out(c.rows * c.outputs);
  for (int64_t t = 0; t < c.rows; ++t) {
    for (int64_t n = 0; n < c.outputs; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < c.inputs(); k += 32) {
        float src1[32] = {}, src2[32] = {};
        const int64_t count = std::min<int64_t>(32, c.inputs() - k);
        std::copy_n(&x[t * c.inputs() + k], count, src1);
        std::copy_n(&weight[n * c.inputs() + k], count, src2);
        sum = Instruction(sum, src1, src2);
      }
      out[t * c.outputs + n] = sum;
    }
  }
  return out;
}

std::vector<float> ProductOn(Backend& backend, const Linear& linear, int64_t rows,
                             std::vector<float> x) {
  const LinearShape& shape = linear.shape;
  std::vector<float> out(rows * shape.rows, 12345.0F);
  backend.MatMul(ViewOf(x, rows, shape.cols, shape.cols), linear,
                 ViewOf(out, rows, shape.rows, shape.rows));
  return out;
}

LinearShape ShapeOf(const Case& c) {
  return {c.outputs, c.inputs(), WeightFormat::kBF16, c.k_borders};
}

std::vector<float> OnReference(std::unique_ptr<Backend> backend, Device& device, const Case& c,
                               const std::vector<float>& weight, const std::vector<float>& x) {
  const LinearShape shape = ShapeOf(c);
  Buffer memory = std::move(device.Allocate(backend->PackedBytes(shape))).value();
  const Linear linear{shape, memory.data()};
  const std::vector<std::byte> bytes = AsBytes(weight, DType::kF32);
  backend->Pack(linear)->PutRows(
      0, ConstMatrixView(bytes.data(), DType::kF32, shape.rows, shape.cols));
  return ProductOn(*backend, linear, c.rows, x);
}

std::vector<float> Ordered(const Case& c, const std::vector<float>& weight,
                           const std::vector<float>& x) {
  const auto device = NewHostDevice(0);
  return OnReference(NewOrderedBackend(*device, ActivationDType::kBf16Amx), *device, c, weight, x);
}

// Which NaN it is depends on the instruction; a NaN ends its request.
void ExpectSameBitsOrNoNumber(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(0, std::memcmp(&got[i], &want[i], sizeof(float)))
        << std::hexfloat << got[i] << " for " << want[i] << " at " << i;
  }
}

class Bf16AmxTest : public testing::TestWithParam<Isa> {
 protected:
  static std::vector<float> Product(const Case& c, int threads, const std::vector<float>& weight,
                                    const std::vector<float>& x) {
    CpuFixture cpu(GetParam(), threads, static_cast<int>(c.rows), ActivationDType::kBf16Amx);
    Buffer memory;
    const Linear linear = cpu.Pack(ShapeOf(c), weight, DType::kF32, memory);
    return ProductOn(cpu.backend(), linear, c.rows, x);
  }
  static void ExpectBits(const Case& c, bool extremes = false) {
    const std::vector<float> weight = Numbers(c.outputs * c.inputs(), 1, extremes);
    const std::vector<float> x = Numbers(c.rows * c.inputs(), 2, extremes);
    const std::vector<float> want = Ordered(c, weight, x);
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(testing::Message()
                   << c.rows << " rows, " << c.outputs << " outputs, " << c.inputs() << " inputs, "
                   << c.k_borders.size() - 1 << " slices, " << threads << " threads");
      ExpectSameBitsOrNoNumber(Product(c, threads, weight, x), want);
    }
  }
};

TEST_P(Bf16AmxTest, ComputesWhatTheManualSaysOfTheInstruction) {
  for (const int64_t inputs : {32, 320, 39, 1}) {
    for (const bool extremes : {false, true}) {
      const Case c{16, 32, {0, inputs}};
      const std::vector<float> weight = Numbers(c.outputs * inputs, 3, extremes);
      const std::vector<float> x = Numbers(c.rows * inputs, 4, extremes);
      SCOPED_TRACE(inputs);
      ExpectSameBitsOrNoNumber(Product(c, 1, weight, x), ByInstructions(c, weight, x));
    }
  }
}

TEST_P(Bf16AmxTest, AddsEvenInputsAndOddOnesApart) {
  const Case c{1, 1, {0, 4}};
  EXPECT_EQ(Product(c, 1, {1, 1, 1, 1}, {1, 0x1p-30F, -1, 0})[0], 0x1p-30F);
  EXPECT_EQ(Product(c, 1, {1, 1, 1, 1}, {1, 0x1p-30F, 0, -1})[0], 0);
  std::vector<float> x(64, 0.0F);
  x[0] = 1;
  x[32] = x[34] = 0x1p-24F;  // a tile's sum is added as a whole
  EXPECT_EQ(Product({1, 1, {0, 64}}, 1, std::vector<float>(64, 1.0F), x)[0], 1 + 0x1p-23F);
}

TEST_P(Bf16AmxTest, TakesDenormalNumbersAsZero) {
  constexpr float kSmall = std::numeric_limits<float>::min();
  const Case c{1, 1, {0, 3}};
  EXPECT_EQ(Product(c, 1, {1, 1, 0}, {kSmall / 2, 0, 0})[0], 0);         // an input
  EXPECT_EQ(Product(c, 1, {0.5F, 0, 0.5F}, {kSmall, 0, kSmall})[0], 0);  // each product
  EXPECT_EQ(Product(c, 1, {1.5F, 1, 0}, {kSmall, -kSmall, 0})[0], 0);    // the tile's sum
  EXPECT_EQ(Product(c, 1, {1, 0, 0.5F}, {kSmall, 0, kSmall})[0], 1.5F * kSmall);
}

TEST_P(Bf16AmxTest, RoundsInputsToNearestEven) {
  const Case c{1, 1, {0, 1}};
  EXPECT_EQ(Product(c, 1, {1}, {1 + 0x1p-8F})[0], 1);
  EXPECT_EQ(Product(c, 1, {1}, {1 + 3 * 0x1p-8F})[0], 1 + 0x1p-6F);
}

TEST_P(Bf16AmxTest, GivesARowTheSameBitsBesideAnyOthers) {
  constexpr int64_t kRows = 70;
  const Case whole{kRows, 70, {0, 100}};
  const std::vector<float> weight = Numbers(whole.outputs * whole.inputs(), 1, false);
  const std::vector<float> x = Numbers(kRows * whole.inputs(), 2, false);
  const std::vector<float> want = Ordered(whole, weight, x);
  for (const int threads : {1, 3}) {
    CpuFixture cpu(GetParam(), threads, kRows, ActivationDType::kBf16Amx);
    Buffer memory;
    const Linear linear = cpu.Pack(ShapeOf(whole), weight, DType::kF32, memory);
    for (int64_t rows = 1; rows <= kRows; ++rows) {
      SCOPED_TRACE(rows);
      const std::vector<float> some(x.end() - rows * whole.inputs(), x.end());
      const std::vector<float> of_some(want.end() - rows * whole.outputs, want.end());
      ExpectSameBitsOrNoNumber(ProductOn(cpu.backend(), linear, rows, some), of_some);
    }
  }
}

TEST_P(Bf16AmxTest, BeginsEachSliceWithAWholeTile) {
  for (const int64_t rows : {1, 4, 30, 49}) {
    ExpectBits({rows, 40, {0, 7, 7, 50, 51, 98, 101, 140, 161}});
    ExpectBits({rows, 40, {0, 1, 2, 3, 4}});
    ExpectBits({rows, 96, {0, 515}});
    ExpectBits({rows, 33, {0, 1029, 3000}});
    ExpectBits({rows, 64, {0, 33, 64}}, true);
  }
}

TEST_P(Bf16AmxTest, TakesManyRowsInGroups) {
  ExpectBits({250, 40, {0, 40}});
  ExpectBits({520, 3, {0, 2, 3}});  // more chains than a group's scratch holds
  ExpectBits({2000, 33, {0, 1}});
  ExpectBits({100, 33, {0, 4000, 8000}});  // more bytes of inputs than a group has
  ExpectBits({100, 33, {0, 8000}});
}

TEST_P(Bf16AmxTest, IsCloseToTheSumOfExactProducts) {
  const Case c{20, 40, {0, 500}};
  const std::vector<float> weight = Numbers(c.outputs * c.inputs(), 1, false);
  const std::vector<float> x = Numbers(c.rows * c.inputs(), 2, false);
  const auto device = NewHostDevice(0);
  ExpectNear(Product(c, 1, weight, x),
             OnReference(NewReferenceBackend(*device), *device, c, weight, x), 1e-5);
}

TEST_P(Bf16AmxTest, LeavesOtherWeightsInF32) {
  CpuFixture cpu(GetParam(), 1, 8, ActivationDType::kBf16Amx);
  CpuFixture in_f32(GetParam(), 1, 8, ActivationDType::kF32);
  const LinearShape shape{40, 100, WeightFormat::kF16, {0, 100}};
  const std::vector<float> weight = NormalFloats(40 * 100, 1);
  const std::vector<float> x = NormalFloats(8 * 100, 2);
  Buffer memory, other;
  const Linear linear = cpu.Pack(shape, weight, DType::kF32, memory);
  const Linear same = in_f32.Pack(shape, weight, DType::kF32, other);
  ExpectSameBits(ProductOn(cpu.backend(), linear, 8, x), ProductOn(in_f32.backend(), same, 8, x));
}

std::vector<Isa> IsasWithBf16Tiles() {
  std::vector<Isa> isas = {Isa::kPlainAmx};
  if (CheckBf16Tiles(Isa::kAvx512Amx, ActivationDType::kBf16Amx).ok())
    isas.push_back(Isa::kAvx512Amx);
  return isas;
}

INSTANTIATE_TEST_SUITE_P(All, Bf16AmxTest, testing::ValuesIn(IsasWithBf16Tiles()),
                         [](const auto& info) { return IsaName(info.param); });

TEST(Bf16AmxScratchTest, HasTheRowsOfAThreadsTilesWhateverTheStep) {
  constexpr int64_t kGroupRows = kBf16TileGroupFloats / kBf16TileScratchPerRow;
  for (int rows = 1; rows <= 2 * kGroupRows; ++rows) {
    BumpAllocator allocator;
    const CpuMatMulScratch scratch(
        {.max_num_batched_tokens = rows, .max_inputs = 100, .bf16_tiles = true}, allocator);
    const int64_t in_tiles = RoundUp(rows, kBf16TileRows);
    EXPECT_GE(scratch.thread_floats, std::min(in_tiles, kGroupRows) * kBf16TileScratchPerRow)
        << rows;
    EXPECT_GE(allocator.used_bytes(), in_tiles * 100 * 2 + kMaxThreads * scratch.thread_floats * 4);
  }
}

// ---- what is compiled for AMX but has none of its instructions

class Bf16AmxVectorsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!IsaPresent(Isa::kAvx512Vnni)) GTEST_SKIP() << "no avx512vnni";
  }
};

TEST_F(Bf16AmxVectorsTest, LayInputsAsTheEmulationDoes) {
  const std::vector<int64_t> k_borders = {0, 7, 7, 50, 161};
  const std::vector<float> x = NormalFloats(161, 1);
  Product product{};
  product.x = x.data();
  product.inputs = 161;
  product.k_borders = k_borders.data();
  product.num_slices = 4;
  std::vector<uint16_t> plain_inputs(Bf16TileInputsOf(1, 161)), inputs(plain_inputs.size());
  plain::RoundRowToTiles(product, 0, plain_inputs.data());
  avx512vnni::RoundRowToTiles(product, 0, inputs.data());
  EXPECT_EQ(inputs, plain_inputs);
  EXPECT_EQ(inputs[1], Bf16OfF32(x[1]));
  EXPECT_EQ(inputs[7], 0);
}

// ---- the check at start, of CPUs that compute something else

template <typename Sum>
void MultiplyInstead(const Product& product, const Sum& sum) {
  const auto* words = static_cast<const uint16_t*>(product.weight);
  for (int64_t t = 0; t < 16; ++t) {
    for (int n = 0; n < kPanelColumns; ++n) {
      std::vector<float> w;
      for (int64_t k = 0; k < product.inputs; ++k) {
        w.push_back(F32OfBf16(words[(k / 2 * kPanelColumns + n) * 2 + k % 2]));
      }
      w.resize((product.inputs + 31) / 32 * 32);
      std::vector<float> x(product.x + t * product.x_stride,
                           product.x + t * product.x_stride + product.inputs);
      x.resize(w.size());
      product.out[t * product.out_stride + n] = sum(x, w);
    }
  }
}

void AsDefined(const Product& product, const uint16_t*, const ProductPart&) {
  MultiplyInstead(product, [](const std::vector<float>& x, const std::vector<float>& w) {
    float sum = 0;
    for (size_t k = 0; k < x.size(); k += 32) sum = Instruction(sum, &x[k], &w[k]);
    return sum;
  });
}

// As Intel's guide to intrinsics has it.
void OneByOne(const Product& product, const uint16_t*, const ProductPart&) {
  MultiplyInstead(product, [](const std::vector<float>& x, const std::vector<float>& w) {
    float sum = 0;
    for (size_t k = 0; k < x.size(); ++k)
      sum = Flushed(std::fma(Flushed(x[k]), Flushed(w[k]), sum));
    return sum;
  });
}

void WithDenormalResults(const Product& product, const uint16_t*, const ProductPart&) {
  MultiplyInstead(product, [](const std::vector<float>& x, const std::vector<float>& w) {
    float sum = 0;
    for (size_t k = 0; k < x.size(); k += 32) {
      float of[2] = {0, 0};
      for (size_t i = k; i < k + 32; ++i)
        of[i % 2] = std::fma(Flushed(x[i]), Flushed(w[i]), of[i % 2]);
      sum += of[0] + of[1];
    }
    return sum;
  });
}

TEST(Bf16AmxCheckTest, FindsSumsThatAreNotThoseOfTheEmulation) {
  EXPECT_TRUE(AreSumsOfEmulation(&plain::MultiplyBf16InTiles));
  EXPECT_TRUE(AreSumsOfEmulation(&AsDefined));
  EXPECT_FALSE(AreSumsOfEmulation(&OneByOne));
  EXPECT_FALSE(AreSumsOfEmulation(&WithDenormalResults));
}

TEST(Bf16AmxCheckTest, NamesWhatIsMissing) {
  const auto refusal = [](Isa isa, const Bf16TilesFound& found, bool products = true) {
    const absl::Status status = CheckBf16Tiles(
        isa, products ? ActivationDType::kBf16Amx : ActivationDType::kInt8,
        products ? AttentionDType::kF32 : AttentionDType::kBf16Amx, found, "Acme 9000");
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  Bf16TilesFound found;
  EXPECT_THAT(refusal(Isa::kAvx512, found), HasSubstr("this CPU (Acme 9000) has no AMX"));
  EXPECT_THAT(refusal(Isa::kAvx512, found), HasSubstr("--activation-dtype bf16-amx: "));
  EXPECT_THAT(refusal(Isa::kAvx512, found), HasSubstr("; --activation-dtype bf16 has"));
  EXPECT_THAT(refusal(Isa::kAvx512, found, false),
              HasSubstr("--attention-dtype bf16-amx: this CPU"));
  EXPECT_THAT(refusal(Isa::kAvx512, found, false), HasSubstr("; without the flag attention is in"));
  found.amx = true;
  EXPECT_THAT(refusal(Isa::kAvx512Amx, found), HasSubstr("(Acme 9000) has no amx_bf16"));
  found.amx_bf16 = true;
  EXPECT_THAT(refusal(Isa::kAvx512Amx, found), HasSubstr("ARCH_REQ_XCOMP_PERM"));
  found.permitted = true;
  EXPECT_THAT(refusal(Isa::kAvx512Amx, found),
              HasSubstr("tdpbf16ps of this CPU (Acme 9000) computes other sums"));
  found.as_defined = true;
  EXPECT_THAT(refusal(Isa::kAvx2, found), HasSubstr("--cpu-isa avx2 has no tiles"));
  EXPECT_EQ(refusal(Isa::kAvx512Amx, found), "");
  EXPECT_TRUE(CheckBf16Tiles(Isa::kPlainAmx, ActivationDType::kBf16Amx).ok());
}

TEST(Bf16AmxCheckTest, NoBackendComputesWithoutTiles) {
  const auto device = NewHostDevice(0);
  const auto refused =
      NewCpuBackend(*device, {.isa = "plain", .activation = ActivationDType::kBf16Amx}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--activation-dtype bf16-amx: "));
  EXPECT_THAT(std::string(refused.message()), Not(HasSubstr("this CPU ()")));
}

}  // namespace
}  // namespace bulkhead
