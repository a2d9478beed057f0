#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

using CudaAddResidualTest = CudaRowsTest;
INSTANTIATE_TEST_SUITE_P(Rows, CudaAddResidualTest, Widths());

TEST_P(CudaAddResidualTest, IsExact) {
  const auto run = [&](Backend& backend) {
    PaddedMatrix x(kRows, GetParam(), 4), sum(kRows, GetParam(), 5), bias(1, GetParam(), 6);
    backend.AddResidual(sum.View(), bias.View(), 0.5F, x.View());
    backend.AddResidual(sum.View(), ConstMatrixView(), 1, x.View());
    Wait(backend);
    return x.Values();
  };
  ExpectLikeReference(run, 0);
}

}  // namespace
}  // namespace bulkhead
