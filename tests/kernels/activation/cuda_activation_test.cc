#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

using CudaActivationTest = CudaRowsTest;
INSTANTIATE_TEST_SUITE_P(Rows, CudaActivationTest, Widths());

TEST_P(CudaActivationTest, IsThatOfTheReferenceWithAGateAndWithout) {
  for (const Activation activation :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kReluSquared}) {
    const auto run = [&](Backend& backend) {
      PaddedMatrix gate_up(kRows, 2 * GetParam(), 3), x(kRows, GetParam(), 4),
          out = PaddedMatrix::Unwritten(kRows, GetParam());
      backend.GatedActivation(activation, gate_up.View(), out.View());
      backend.Activate(activation, x.View(), x.View());
      Wait(backend);
      std::vector<float> all = out.Values();
      const std::vector<float> values = x.Values();
      all.insert(all.end(), values.begin(), values.end());
      return all;
    };
    ExpectLikeReference(run, kActivationTolerance);
  }
}

TEST_P(CudaActivationTest, ForProductsIsTheOtherRounded) {
  const int64_t width = GetParam();
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (CudaUnderTest& cuda : AllSchedules(true)) {
      PaddedMatrix gate_up(kRows, 2 * width, 3), out = PaddedMatrix::Unwritten(kRows, width);
      RoundedMatrix gated(dtype, kRows, width);
      cuda.backend->GatedActivation(Activation::kSilu, gate_up.View(), out.View());
      cuda.backend->GatedActivation(Activation::kSilu, gate_up.View(), gated.View());
      Wait(*cuda.backend);
      gated.ExpectRounded(out.Values());
    }
  }
}

TEST(CudaBf16ActivationTest, OfRowsInBf16IsThatOfTheirNumbers) {
  for (const int64_t width : {8, 64, 2056}) {  // the last in two blocks
    const int64_t stride = 2 * width + 8;
    std::vector<float> numbers = RandomFloats(kRows * stride, 3);
    std::vector<uint16_t> bits(numbers.size());
    for (size_t i = 0; i < bits.size(); ++i) {
      bits[i] = Bf16OfF32(4 * numbers[i]);
      numbers[i] = F32OfBf16(bits[i]);
    }
    const MatrixView in_f32(reinterpret_cast<std::byte*>(numbers.data()), DType::kF32, kRows,
                            2 * width, stride);
    const MatrixView in_bf16(reinterpret_cast<std::byte*>(bits.data()), DType::kBF16, kRows,
                             2 * width, stride);
    for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
      for (CudaUnderTest& cuda : AllSchedules(true)) {
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          std::vector<uint32_t> want(kRows * width), got(kRows * width);
          const auto out_of = [&](std::vector<uint32_t>& out) {
            return MatrixView(reinterpret_cast<std::byte*>(out.data()), dtype, kRows, width);
          };
          cuda.backend->GatedActivation(activation, in_f32, out_of(want));
          cuda.backend->GatedActivation(activation, in_bf16, out_of(got));
          Wait(*cuda.backend);
          EXPECT_EQ(got, want) << width << ", " << DTypeName(dtype);
        }
      }
    }
  }
}

}  // namespace
}  // namespace bulkhead
