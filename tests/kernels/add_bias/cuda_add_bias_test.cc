#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

using CudaAddBiasTest = CudaRowsTest;
INSTANTIATE_TEST_SUITE_P(Rows, CudaAddBiasTest, Widths());

TEST_P(CudaAddBiasTest, IsExact) {
  const auto run = [&](Backend& backend) {
    PaddedMatrix x(kRows, GetParam(), 4), bias(1, GetParam(), 6);
    backend.AddBias(bias.View(), x.View());
    Wait(backend);
    return x.Values();
  };
  ExpectLikeReference(run, 0);
}

}  // namespace
}  // namespace bulkhead
