#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

using CudaScaleAndCapTest = CudaRowsTest;
INSTANTIATE_TEST_SUITE_P(Rows, CudaScaleAndCapTest, Widths());

TEST_P(CudaScaleAndCapTest, IsThatOfTheReference) {
  const auto run = [&](Backend& backend) {
    PaddedMatrix x(kRows, GetParam(), 1), scaled(kRows, GetParam(), 2);
    backend.ScaleAndCap(8.0F, 3.0F, x.View());
    backend.ScaleAndCap(0.125F, 0.0F, scaled.View());
    Wait(backend);
    std::vector<float> all = x.Values();
    const std::vector<float> values = scaled.Values();
    all.insert(all.end(), values.begin(), values.end());
    return all;
  };
  ExpectLikeReference(run, 1e-5);
}

TEST_P(CudaScaleAndCapTest, AFactorMayBeAmongTheWeights) {
  const auto run = [&](Backend& backend) {
    PaddedMatrix x(kRows, GetParam(), 1), factor(1, 1, 2);
    backend.ScaleBy(factor.View().F32(), x.View());
    Wait(backend);
    return x.Values();
  };
  ExpectLikeReference(run, 1e-6);
}

}  // namespace
}  // namespace bulkhead
