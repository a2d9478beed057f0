// Products of quantised weights: every instruction set, any rows, threads, slices and groups, with
// f32 and with int8 activations, equal the ordered reference by memcmp.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "kernels/matmul/input_quantizer.h"
#include "kernels/simd/number_format.h"
#include "memory/fp8.h"
#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

struct Case {
  int64_t outputs;
  int64_t inputs;
  std::vector<int64_t> k_borders;
  WeightGroups groups;
};

std::vector<Case> Cases() {
  return {
      {33, 7, {0, 7}, {32, 0, 0}},
      {64, 128, {0, 128}, {128, 0, 0}},
      {100, 322, {0, 322}, {64, 0, 0}},
      {31, 320, {0, 64, 128, 160, 192, 224, 256, 288, 320}, {32, 0, 0}},
      {40, 150, {0, 38, 75, 113, 150}, {32, 0, 0}},  // slices cut groups
      {70, 96, {0, 48, 96}, {32, 16, 0}},            // a share that begins in a group
      {70, 92, {0, 46, 92}, {16, 14, 0}},
      {16, 64, {0, 64, 64, 64, 64}, {32, 0, 0}},           // empty slices
      {5, 2000, {0, 500, 1000, 1500, 2000}, {128, 0, 0}},  // fewer panels than threads
  };
}

// Codes, scales and zeros as a checkpoint could hold them.
struct Quantized {
  std::vector<uint8_t> codes, zeros;
  std::vector<uint16_t> scales;
  std::vector<float> f32_scales, factors;
  std::vector<int32_t> index;

  Quantized(const LinearShape& shape, uint32_t seed) {
    std::mt19937 random(seed);
    const int64_t groups = NumGroups(shape);
    const bool is_int4 = shape.format == WeightFormat::kInt4;
    const bool has_bytes = WeightBits(shape.format) == 8;
    for (int64_t i = 0; i < shape.rows * shape.cols; ++i) {
      codes.push_back(static_cast<uint8_t>(random() % (has_bytes ? 256 : 16)));
    }
    for (int64_t i = 0; i < shape.rows * groups; ++i) {
      f32_scales.push_back(1e-3F * static_cast<float>(1 + random() % 100));
      scales.push_back(Scale(shape.groups.scales, static_cast<int>(random() % 100)));
      zeros.push_back(static_cast<uint8_t>(is_int4 ? random() % 17 : 128));
    }
    for (int64_t i = 0; i < shape.rows; ++i) {
      factors.push_back(1e-4F * static_cast<float>(1 + random() % 100));
    }
    for (int64_t i = 0; i < shape.cols; ++i) {
      index.push_back(static_cast<int32_t>(random() % std::max(shape.groups.indexed, 1)));
    }
  }
  // Among those of bf16 one that f16 cannot hold, of e8m0 the least, of e4m3 0 and negative ones.
  static uint16_t Scale(ScaleFormat format, int step) {
    const float scale = 0.001F + 0.01F * static_cast<float>(step);
    if (format == ScaleFormat::kF16) return F16OfF32(scale);
    if (format == ScaleFormat::kBF16) return Bf16OfF32(step == 0 ? 3e-9F : scale);
    if (format == ScaleFormat::kE4M3) return static_cast<uint16_t>(5 * step / 2 & 0xFE);
    return static_cast<uint16_t>(step == 0 ? 0 : 110 + step % 20);
  }
  void Put(const LinearShape& shape, WeightSink& sink) const {
    const int64_t groups = NumGroups(shape);
    if (shape.groups.indexed > 0) sink.PutGroupIndex(index);
    const int64_t half = shape.rows / 2;  // in two parts, as a loader does
    for (const auto& [begin, end] : {std::pair{half, shape.rows}, std::pair{int64_t{0}, half}}) {
      QuantizedRows rows{end - begin, codes.data() + begin * shape.cols,
                         scales.data() + begin * groups, zeros.data() + begin * groups};
      if (shape.format == WeightFormat::kFp8) rows.f32_scales = f32_scales.data() + begin * groups;
      if (shape.groups.scales == ScaleFormat::kE4M3) rows.factors = factors.data() + begin;
      sink.PutQuantizedRows(begin, rows);
    }
  }
};

class QuantizedProductsTest : public testing::TestWithParam<std::tuple<Isa, int>> {
 protected:
  // What `backend` computes of x with the weight.
  template <typename Fill>
  static std::vector<float> Run(Backend& backend, Device& device, const LinearShape& shape,
                                const Fill& fill, std::vector<float>& x, int64_t rows) {
    Buffer memory = std::move(device.Allocate(backend.PackedBytes(shape))).value();
    std::memset(memory.data(), 0, backend.PackedBytes(shape));
    const Linear linear{shape, memory.data()};
    fill(*backend.Pack(linear));
    std::vector<float> out(rows * shape.rows, NAN);
    backend.MatMul(ViewOf(x, rows, shape.cols, shape.cols), linear,
                   ViewOf(out, rows, shape.rows, shape.rows));
    return out;
  }

  template <typename Fill>
  void ExpectEqualBits(const LinearShape& shape, const Fill& fill,
                       const std::vector<int64_t>& all_rows = {1, 2, 4, 5, 7, 13, 100},
                       int max_rows = 128) {
    const auto [isa, threads] = GetParam();
    for (const ActivationDType activation : {ActivationDType::kF32, ActivationDType::kInt8}) {
      CpuFixture cpu(isa, threads, max_rows, activation, shape.cols);
      const std::unique_ptr<Device> device = NewHostDevice(0);
      const std::unique_ptr<Backend> ordered = NewOrderedBackend(*device, activation);
      for (const int64_t rows : all_rows) {
        std::vector<float> x = NormalFloats(rows * shape.cols, static_cast<uint32_t>(rows));
        const std::vector<float> want = Run(*ordered, *device, shape, fill, x, rows);
        const std::vector<float> got = Run(cpu.backend(), *device, shape, fill, x, rows);
        EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
            << WeightFormatName(shape.format) << ", " << rows << " rows of " << shape.cols << " -> "
            << shape.rows << ", activations " << static_cast<int>(activation) << ": " << want[0]
            << " and " << got[0];
      }
    }
  }
};

TEST_P(QuantizedProductsTest, CodesOfACheckpointEqualTheOrderedReference) {
  const std::pair<WeightFormat, ScaleFormat> formats[] = {
      {WeightFormat::kInt8, ScaleFormat::kF16},   {WeightFormat::kInt4, ScaleFormat::kF16},
      {WeightFormat::kInt8, ScaleFormat::kBF16},  {WeightFormat::kInt4, ScaleFormat::kBF16},
      {WeightFormat::kMxfp4, ScaleFormat::kE8M0}, {WeightFormat::kFp8, ScaleFormat::kF32},
      {WeightFormat::kNvfp4, ScaleFormat::kE4M3}};
  for (const auto& [format, scales] : formats) {
    for (const Case& c : Cases()) {
      LinearShape shape{c.outputs, c.inputs, format, c.k_borders, c.groups};
      shape.groups.scales = scales;
      const Quantized quantized(shape, 3);
      ExpectEqualBits(shape, [&](WeightSink& sink) { quantized.Put(shape, sink); });
    }
  }
}

TEST_P(QuantizedProductsTest, WeightsQuantisedAtLoadEqualTheOrderedReference) {
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    for (const Case& c : Cases()) {
      const LinearShape shape{c.outputs, c.inputs, format, c.k_borders, {c.groups.size, 0, 0}};
      const std::vector<float> weights = NormalFloats(c.outputs * c.inputs, 5);
      const std::vector<std::byte> bytes = AsBytes(weights, DType::kBF16);
      ExpectEqualBits(shape, [&](WeightSink& sink) {
        sink.PutRows(0, ConstMatrixView(bytes.data(), DType::kBF16, c.outputs, c.inputs));
      });
    }
  }
}

// Steps that just fit the scratch of a thread, and rows that are worked on in groups: more than its
// chains are for, or whose inputs are many.
TEST_P(QuantizedProductsTest, ManyRowsEqualTheOrderedReference) {
  const std::pair<Case, std::vector<int>> cases[] = {
      {{3, 64, {0, 8, 16, 24, 32, 40, 48, 56, 64}, {32, 0, 0}},
       {13, 16, 17, 47, 48, 49, 520, 2000}},
      {{3, 32, {0, 32}, {32, 0, 0}}, {17, 6000}},
      {{3, 8192, {0, 8192}, {128, 0, 0}}, {150}},
      {{3, 8192, {0, 4096, 8192}, {128, 0, 0}}, {150}}};
  for (const auto& [c, all_rows] : cases) {
    const LinearShape shape{c.outputs, c.inputs, WeightFormat::kInt8, c.k_borders, c.groups};
    const Quantized quantized(shape, 3);
    for (const int rows : all_rows) {
      ExpectEqualBits(
          shape, [&](WeightSink& sink) { quantized.Put(shape, sink); }, {rows}, rows);
    }
  }
}

// Sums of 16 bits overflow at none of them.
TEST_P(QuantizedProductsTest, LargestCodesAndInputsEqualTheOrderedReference) {
  const auto [isa, threads] = GetParam();
  const std::pair<WeightFormat, uint8_t> cases[] = {{WeightFormat::kInt8, 0},
                                                    {WeightFormat::kInt8, 255},
                                                    {WeightFormat::kInt4, 15},
                                                    {WeightFormat::kMxfp4, 7},
                                                    {WeightFormat::kMxfp4, 15}};
  for (const auto& [format, code] : cases) {
    const bool is_fp4 = format == WeightFormat::kMxfp4;
    LinearShape shape{40, 256, format, {0, 256}, {is_fp4 ? 32 : 128, 0, 0}};
    if (is_fp4) shape.groups.scales = ScaleFormat::kE8M0;
    Quantized quantized(shape, 3);
    std::fill(quantized.codes.begin(), quantized.codes.end(), code);
    const auto fill = [&](WeightSink& sink) { quantized.Put(shape, sink); };
    CpuFixture cpu(isa, threads, 128, ActivationDType::kInt8, shape.cols);
    const std::unique_ptr<Device> device = NewHostDevice(0);
    const std::unique_ptr<Backend> ordered = NewOrderedBackend(*device, ActivationDType::kInt8);
    for (const int64_t rows : {1, 3, 20}) {
      for (const float input : {1.0F, -1.0F}) {
        std::vector<float> x(rows * shape.cols, input);
        EXPECT_EQ(Run(*ordered, *device, shape, fill, x, rows),
                  Run(cpu.backend(), *device, shape, fill, x, rows))
            << WeightFormatName(format) << ", code " << int{code} << ", " << rows << " rows of "
            << input;
      }
    }
  }
}

TEST_P(QuantizedProductsTest, GroupsByIndexEqualTheOrderedReference) {
  for (const WeightFormat format : {WeightFormat::kInt4, WeightFormat::kInt8}) {
    for (const Case& c : Cases()) {
      const LinearShape shape{c.outputs, c.inputs, format, c.k_borders, {c.groups.size, 0, 5}};
      const Quantized quantized(shape, 7);
      ExpectEqualBits(shape, [&](WeightSink& sink) { quantized.Put(shape, sink); });
    }
  }
}

TEST_P(QuantizedProductsTest, Fp4RowsAreWidenedExactly) {
  const auto [isa, threads] = GetParam();
  CpuFixture cpu(isa, threads);
  LinearShape shape{33, 64, WeightFormat::kMxfp4, {0, 64}, {32, 0, 0, ScaleFormat::kE8M0}};
  const std::unique_ptr<Device> device = NewHostDevice(0);
  Buffer memory = std::move(device->Allocate(cpu.backend().PackedBytes(shape))).value();
  std::memset(memory.data(), 0, cpu.backend().PackedBytes(shape));
  const Linear linear{shape, memory.data()};
  std::vector<uint8_t> codes(33 * 64);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i % 16);
  std::vector<uint16_t> scales(33 * 2, 127);
  scales[32 * 2] = 0;        // 2^-127
  scales[32 * 2 + 1] = 130;  // 8
  cpu.backend().Pack(linear)->PutQuantizedRows(0, {33, codes.data(), scales.data(), nullptr});
  const float numbers[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, 0, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  const std::vector<int32_t> tokens = {3, 32};
  std::vector<float> got(2 * 64);
  cpu.backend().Embed(tokens.data(), linear, 0, ViewOf(got, 2, 64, 64));
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(got[i], numbers[i % 16]);
    EXPECT_EQ(got[64 + i], numbers[i % 16] * (i < 32 ? 0x1p-127F : 8.0F));
  }
}

TEST_P(QuantizedProductsTest, ScalesOfFp4InE4m3AreMultipliedByTheOutputsFactor) {
  const auto [isa, threads] = GetParam();
  CpuFixture cpu(isa, threads);
  LinearShape shape{33, 32, WeightFormat::kNvfp4, {0, 32}, {16, 0, 0, ScaleFormat::kE4M3}};
  const std::unique_ptr<Device> device = NewHostDevice(0);
  Buffer memory = std::move(device->Allocate(cpu.backend().PackedBytes(shape))).value();
  std::memset(memory.data(), 0, cpu.backend().PackedBytes(shape));
  const Linear linear{shape, memory.data()};
  const std::vector<uint8_t> codes(33 * 32, 7);  // 6
  std::vector<uint16_t> scales(33 * 2, 0x38);    // 1
  scales[32 * 2] = 1;                            // 2^-9
  scales[32 * 2 + 1] = 0xFE;                     // -448
  std::vector<float> factors(33, 0.1F);
  factors[32] = 0.3F;
  QuantizedRows rows{33, codes.data(), scales.data()};
  rows.factors = factors.data();
  cpu.backend().Pack(linear)->PutQuantizedRows(0, rows);
  const std::vector<int32_t> tokens = {3, 32};
  std::vector<float> got(2 * 32);
  cpu.backend().Embed(tokens.data(), linear, 0, ViewOf(got, 2, 32, 32));
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(got[i], 6 * 0.1F);
    EXPECT_EQ(got[32 + i], 6 * (0.3F * (i < 16 ? 0x1p-9F : -448.0F)));
  }
}

TEST_P(QuantizedProductsTest, Fp8RowsAreWidenedExactly) {
  const auto [isa, threads] = GetParam();
  CpuFixture cpu(isa, threads);
  const LinearShape shape{1, 254, WeightFormat::kFp8, {0, 254}, {128, 0, 0, ScaleFormat::kF32}};
  const std::unique_ptr<Device> device = NewHostDevice(0);
  Buffer memory = std::move(device->Allocate(cpu.backend().PackedBytes(shape))).value();
  std::memset(memory.data(), 0, cpu.backend().PackedBytes(shape));
  const Linear linear{shape, memory.data()};
  std::vector<uint8_t> codes;  // but those of NaN
  for (int i = 0; i < 254; ++i) codes.push_back(static_cast<uint8_t>(i < 127 ? i : i + 1));
  const float scales[2] = {255.5F, 0.1F};  // the first near kEndOfFp8Scales
  QuantizedRows rows{1, codes.data()};
  rows.f32_scales = scales;
  cpu.backend().Pack(linear)->PutQuantizedRows(0, rows);
  const int32_t token = 0;
  std::vector<float> got(254);
  cpu.backend().Embed(&token, linear, 0, ViewOf(got, 1, 254, 254));
  for (int i = 0; i < 254; ++i) {
    const int exponent = codes[i] >> 3 & 15;
    const float fraction = static_cast<float>(codes[i] & 7) / 8;
    const float number =
        exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
    const float want = (codes[i] >= 128 ? -number : number) * scales[i / 128];
    EXPECT_EQ(got[i], want + 0.0F) << i;
    std::vector<float> one(254, 0.0F);
    one[i] = 1;
    std::vector<float> out(1);
    cpu.backend().MatMul(ViewOf(one, 1, 254, 254), linear, ViewOf(out, 1, 1, 1));
    EXPECT_EQ(out[0], want + 0.0F) << i;
  }
}

TEST_P(QuantizedProductsTest, EveryFp8CodeIsItsNumberInEveryColumn) {
  const auto [isa, threads] = GetParam();
  CpuFixture cpu(isa, threads, 256);
  const LinearShape shape{35, 256, WeightFormat::kFp8, {0, 256}, {128, 0, 0, ScaleFormat::kF32}};
  const std::unique_ptr<Device> device = NewHostDevice(0);
  Buffer memory = std::move(device->Allocate(cpu.backend().PackedBytes(shape))).value();
  std::memset(memory.data(), 0, cpu.backend().PackedBytes(shape));
  const Linear linear{shape, memory.data()};
  std::vector<uint8_t> codes;  // each in every byte of a word
  for (int i = 0; i < 35 * 256; ++i) codes.push_back(static_cast<uint8_t>(i % 256 + i / 256));
  const std::vector<float> scales(35 * 2, 0.1F);
  QuantizedRows weight{35, codes.data()};
  weight.f32_scales = scales.data();
  cpu.backend().Pack(linear)->PutQuantizedRows(0, weight);
  std::vector<float> unit(256 * 256, 0.0F);
  for (int i = 0; i < 256; ++i) unit[i * 257] = 1;
  for (const int rows : {1, 2, 256}) {
    for (int row = 0; row < 256; row += rows) {
      std::vector<float> x(unit.begin() + row * 256, unit.begin() + (row + rows) * 256);
      std::vector<float> out(rows * 35);
      cpu.backend().MatMul(ViewOf(x, rows, 256, 256), linear, ViewOf(out, rows, 35, 35));
      for (int i = 0; i < rows * 35; ++i) {
        const uint8_t code = codes[i % 35 * 256 + row + i / 35];
        const bool is_nan = (code & 0x7F) == 0x7F;  // as 480
        const float number = is_nan ? (code == 0x7F ? 480.0F : -480.0F) : F32OfE4m3(code);
        ASSERT_EQ(out[i], number * 0.1F + 0.0F) << int{code};
      }
    }
  }
}

TEST_P(QuantizedProductsTest, TableRowsAreWidenedExactly) {
  const auto [isa, threads] = GetParam();
  CpuFixture cpu(isa, threads);
  const LinearShape shape{40, 70, WeightFormat::kInt8, {0, 70}, {32, 0, 0}};
  const std::vector<float> weights = NormalFloats(40 * 70, 5);
  Buffer memory;
  const Linear linear = cpu.Pack(shape, weights, DType::kF32, memory);
  const std::unique_ptr<Device> device = NewHostDevice(0);
  const std::unique_ptr<Backend> ordered = NewOrderedBackend(*device);
  Buffer plain = std::move(device->Allocate(ordered->PackedBytes(shape))).value();
  const Linear other{shape, plain.data()};
  ordered->Pack(other)->PutRows(
      0, ConstMatrixView(reinterpret_cast<const std::byte*>(weights.data()), DType::kF32, 40, 70));
  const std::vector<int32_t> tokens = {39, 3, 55, 0};
  std::vector<float> got(4 * 70), want(4 * 70);
  cpu.backend().Embed(tokens.data(), linear, 0, ViewOf(got, 4, 70, 70));
  ordered->Embed(tokens.data(), other, 0, ViewOf(want, 4, 70, 70));
  EXPECT_EQ(got, want);
  EXPECT_NEAR(got[0], weights[39 * 70], 0.03);
  EXPECT_EQ(got[2 * 70], 0.0F);
}

TEST_P(QuantizedProductsTest, InputThatIsNoNumberSpoilsItsRowAlone) {
  const auto [isa, threads] = GetParam();
  const LinearShape shape{40, 128, WeightFormat::kInt4, {0, 128}, {32, 0, 0}};
  CpuFixture cpu(isa, threads, 128, ActivationDType::kInt8, 128);
  Buffer memory;
  const Linear linear = cpu.Pack(shape, NormalFloats(40 * 128, 5), DType::kF32, memory);
  for (const float bad : {std::numeric_limits<float>::infinity(), NAN}) {
    std::vector<float> x = NormalFloats(3 * 128, 1);
    x[128 + 77] = bad;
    std::vector<float> out(3 * 40);
    cpu.backend().MatMul(ViewOf(x, 3, 128, 128), linear, ViewOf(out, 3, 40, 40));
    EXPECT_TRUE(std::isfinite(out[0]));
    EXPECT_TRUE(std::isnan(out[40]));
    EXPECT_TRUE(std::isfinite(out[80]));
  }
}

std::vector<Isa> IsasOfProducts() {
  std::vector<Isa> isas = PresentIsas();
  isas.push_back(Isa::kPlainAmx);
  return isas;
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedProductsTest,
                         testing::Combine(testing::ValuesIn(IsasOfProducts()),
                                          testing::Values(1, 3)),
                         [](const auto& info) {
                           return std::string(IsaName(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(InputQuantizerTest, LargestInputIs127AndTinyOnesAreZero) {
  std::vector<int8_t> codes(3);
  const std::vector<float> x = {-2.0F, 1.0F, 0.0F};
  const InputScaling scaling = QuantizeInputs(x, absl::MakeSpan(codes));
  EXPECT_EQ(codes, (std::vector<int8_t>{-127, 64, 0}));  // 63.5 to the even one
  EXPECT_EQ(scaling.sum, -63);
  EXPECT_EQ(scaling.scale, 2.0F / 127.0F);
  const std::vector<float> tiny = {1e-38F, -1e-35F, 0.0F};
  EXPECT_EQ(QuantizeInputs(tiny, absl::MakeSpan(codes)).scale, 0.0F);
}

}  // namespace
}  // namespace bulkhead
