// MatMulGated has the bits of MatMul and GatedActivation one after the other, whatever the chunks.
#include <cstring>

#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

constexpr float kUntouched = 12345.0f;
constexpr int64_t kMaxRows = 600;

struct Case {
  const char* isa;
  WeightFormat format;
  ActivationDType activation;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.isa << ", " << WeightFormatName(c.format) << " in "
             << ActivationDTypeName(c.activation);
}

class GatedMatMulTest : public testing::TestWithParam<Case> {
 protected:
  // Of gates and ups of `columns` each.
  void ExpectBits(CpuFixture& cpu, int64_t rows, int64_t columns, int num_slices) {
    SCOPED_TRACE(testing::Message()
                 << rows << " rows, " << columns << " gates, " << num_slices << " slices");
    constexpr int64_t kInputs = 160;
    LinearShape shape{2 * columns, kInputs, GetParam().format, {0}};
    for (int i = 1; i <= num_slices; ++i) shape.k_borders.push_back(kInputs * i / num_slices);
    if (IsQuantized(shape.format)) shape.groups.size = 32;
    Buffer memory;
    const Linear weight =
        cpu.Pack(shape, NormalFloats(2 * columns * kInputs, 1), DType::kF32, memory);
    std::vector<float> x = NormalFloats(rows * kInputs, 2);
    const int64_t both_stride = 2 * columns + 5;
    const int64_t stride = columns + 3;
    const auto run = [&](bool together) {
      std::vector<float> both(rows * both_stride, kUntouched);
      std::vector<float> out(rows * stride + 16, kUntouched);
      const MatrixView x_view = ViewOf(x, rows, kInputs, kInputs);
      const MatrixView both_view = ViewOf(both, rows, 2 * columns, both_stride);
      const MatrixView out_view = ViewOf(out, rows, columns, stride);
      if (together) {
        cpu.backend().MatMulGated(Activation::kGeluTanh, x_view, weight, both_view, out_view);
      } else {
        cpu.backend().MatMul(x_view, weight, both_view);
        cpu.backend().GatedActivation(Activation::kGeluTanh, both_view, out_view);
      }
      return out;
    };
    const std::vector<float> want = run(false);
    const std::vector<float> got = run(true);
    EXPECT_EQ(0, std::memcmp(got.data(), want.data(), got.size() * sizeof(float)));
  }
};

TEST_P(GatedMatMulTest, HasTheBitsOfBothOneAfterTheOther) {
  const absl::StatusOr<Isa> isa = ParseIsa(GetParam().isa);
  if (!isa.ok() || !CheckBf16Tiles(*isa, GetParam().activation).ok()) {
    GTEST_SKIP() << "not on this CPU";
  }
  for (const int threads : {1, 3}) {
    SCOPED_TRACE(testing::Message() << threads << " threads");
    CpuFixture cpu(*isa, threads, kMaxRows, GetParam().activation, /*max_int8_inputs=*/160);
    ExpectBits(cpu, 63, 96, 1);  // not in chunks
    ExpectBits(cpu, 64, 32, 1);
    ExpectBits(cpu, 65, 96, 1);
    ExpectBits(cpu, 65, 40, 1);  // gates do not end with a panel
    ExpectBits(cpu, 130, 416, 4);
    ExpectBits(cpu, kMaxRows, 224, 1);  // several chunks of rows and of panels
    ExpectBits(cpu, kMaxRows, 96, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, GatedMatMulTest,
    testing::Values(Case{"plain", WeightFormat::kF32, ActivationDType::kF32},  // not in chunks
                    Case{"plain", WeightFormat::kInt8, ActivationDType::kInt8},
                    Case{"avx2", WeightFormat::kInt4, ActivationDType::kInt8},
                    Case{"auto", WeightFormat::kInt8, ActivationDType::kInt8},
                    Case{"plain_amx", WeightFormat::kInt8, ActivationDType::kInt8},
                    Case{"plain_amx", WeightFormat::kBF16, ActivationDType::kBf16Amx},
                    Case{"avx512vnni", WeightFormat::kInt8, ActivationDType::kInt8},
                    Case{"avx512amx", WeightFormat::kInt4, ActivationDType::kInt8},
                    Case{"avx512amx", WeightFormat::kBF16, ActivationDType::kBf16Amx}));

}  // namespace
}  // namespace bulkhead
