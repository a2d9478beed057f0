#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

using CudaFillTest = CudaRowsTest;
INSTANTIATE_TEST_SUITE_P(Rows, CudaFillTest, Widths());

TEST_P(CudaFillTest, WritesMinusZeroAndNothingBeside) {
  const auto run = [&](Backend& backend) {
    PaddedMatrix out = PaddedMatrix::Unwritten(kRows, GetParam());
    backend.Fill(-0.0F, out.View());
    Wait(backend);
    return out.Values();
  };
  const std::unique_ptr<Device> host = NewHostDevice(0);
  ExpectSameBits(OnAllSchedules(run), run(*NewReferenceBackend(*host)));
}

}  // namespace
}  // namespace bulkhead
