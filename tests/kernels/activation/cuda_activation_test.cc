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

}  // namespace
}  // namespace bulkhead
