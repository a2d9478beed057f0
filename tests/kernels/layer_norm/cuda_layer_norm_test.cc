#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

using CudaLayerNormTest = CudaRowsTest;
INSTANTIATE_TEST_SUITE_P(Rows, CudaLayerNormTest, Widths());

TEST_P(CudaLayerNormTest, IsThatOfTheReferenceWithABiasAndWithout) {
  for (const bool has_bias : {false, true}) {
    const auto run = [&](Backend& backend) {
      PaddedMatrix x(kRows, GetParam(), 1), weight(1, GetParam(), 2), bias(1, GetParam(), 3);
      backend.LayerNorm(x.View(), weight.View(),
                        has_bias ? ConstMatrixView(bias.View()) : ConstMatrixView(), 1e-5F,
                        x.View());
      Wait(backend);
      return x.Values();
    };
    ExpectLikeReference(run, 10 * kNormTolerance);
  }
}

TEST_P(CudaLayerNormTest, ForProductsIsTheOtherRounded) {
  for (CudaUnderTest& cuda : AllSchedules(true)) {
    PaddedMatrix x(kRows, GetParam(), 1), weight(1, GetParam(), 2);
    PaddedMatrix out = PaddedMatrix::Unwritten(kRows, GetParam());
    RoundedMatrix normed(DType::kBF16, kRows, GetParam());
    cuda.backend->LayerNorm(x.View(), weight.View(), {}, 1e-5F, out.View());
    cuda.backend->LayerNorm(x.View(), weight.View(), {}, 1e-5F, normed.View());
    Wait(*cuda.backend);
    normed.ExpectRounded(out.Values());
  }
}

}  // namespace
}  // namespace bulkhead
