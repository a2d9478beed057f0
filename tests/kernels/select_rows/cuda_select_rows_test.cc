#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

using CudaSelectRowsTest = CudaRowsTest;
INSTANTIATE_TEST_SUITE_P(Rows, CudaSelectRowsTest, Widths());

TEST_P(CudaSelectRowsTest, IsExact) {
  const auto run = [&](Backend& backend) {
    PaddedMatrix x(kRows, GetParam(), 7), out = PaddedMatrix::Unwritten(3, GetParam());
    const std::vector<int32_t> rows = {4, 0, 0};
    backend.SelectRows(x.View(), rows.data(), out.View());
    Wait(backend);
    return out.Values();
  };
  ExpectLikeReference(run, 0);
}

}  // namespace
}  // namespace bulkhead
