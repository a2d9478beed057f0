#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

using CudaRmsNormTest = CudaRowsTest;
INSTANTIATE_TEST_SUITE_P(Rows, CudaRmsNormTest, Widths());

TEST_P(CudaRmsNormTest, RmsNormIsThatOfTheReference) {
  const auto run = [&](Backend& backend) {
    PaddedMatrix x(kRows, GetParam(), 1), weight(1, GetParam(), 2);
    backend.RmsNorm(x.View(), weight.View(), 1e-5F, x.View());
    Wait(backend);
    return x.Values();
  };
  ExpectLikeReference(run, kNormTolerance);
}

TEST_P(CudaRmsNormTest, OfASumForProductsIsTheOtherRounded) {
  const int64_t width = GetParam();
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (CudaUnderTest& cuda : AllSchedules(true)) {
      PaddedMatrix out = PaddedMatrix::Unwritten(kRows, width);
      PaddedMatrix x(kRows, width, 1), weight(1, width, 2), sum(kRows, width, 5);
      RoundedMatrix normed(dtype, kRows, width);
      PaddedMatrix twice = x;
      cuda.backend->AddResidualNorm(sum.View(), {}, 1, x.View(), weight.View(), 1e-5F, out.View());
      cuda.backend->AddResidualNorm(sum.View(), {}, 1, twice.View(), weight.View(), 1e-5F,
                                    normed.View());
      Wait(*cuda.backend);
      normed.ExpectRounded(out.Values());
    }
  }
}

TEST_P(CudaRmsNormTest, ASumAndItsNormAreThoseOfTwoPasses) {
  for (const bool has_bias : {false, true}) {
    const auto run = [&](Backend& backend, bool one_pass) {
      PaddedMatrix x(kRows, GetParam(), 4), sum(kRows, GetParam(), 5), bias(1, GetParam(), 6);
      PaddedMatrix weight(1, GetParam(), 7), normed = PaddedMatrix::Unwritten(kRows, GetParam());
      const ConstMatrixView added = has_bias ? ConstMatrixView(bias.View()) : ConstMatrixView();
      if (one_pass) {
        backend.AddResidualNorm(sum.View(), added, 0.5F, x.View(), weight.View(), 1e-5F,
                                normed.View());
      } else {
        backend.AddResidual(sum.View(), added, 0.5F, x.View());
        backend.RmsNorm(x.View(), weight.View(), 1e-5F, normed.View());
      }
      Wait(backend);
      std::vector<float> all = x.Values();
      const std::vector<float> norms = normed.Values();
      all.insert(all.end(), norms.begin(), norms.end());
      return all;
    };
    EXPECT_EQ(OnAllSchedules([&](Backend& backend) { return run(backend, true); }),
              OnAllSchedules([&](Backend& backend) { return run(backend, false); }));
  }
}

}  // namespace
}  // namespace bulkhead
