#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

using CudaSwiGluTest = CudaRowsTest;
INSTANTIATE_TEST_SUITE_P(Rows, CudaSwiGluTest, Widths());

TEST_P(CudaSwiGluTest, SwiGluIsThatOfTheReference) {
  const auto run = [&](Backend& backend) {
    PaddedMatrix gate_up(kRows, 2 * GetParam(), 3),
        out = PaddedMatrix::Unwritten(kRows, GetParam());
    backend.SwiGlu(gate_up.View(), out.View());
    Wait(backend);
    return out.Values();
  };
  ExpectLikeReference(run, kSwiGluTolerance);
}

TEST_P(CudaSwiGluTest, ForProductsIsTheOtherRounded) {
  const int64_t width = GetParam();
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (CudaUnderTest& cuda : AllSchedules(true)) {
      PaddedMatrix gate_up(kRows, 2 * width, 3), out = PaddedMatrix::Unwritten(kRows, width);
      RoundedMatrix gated(dtype, kRows, width);
      cuda.backend->SwiGlu(gate_up.View(), out.View());
      cuda.backend->SwiGlu(gate_up.View(), gated.View());
      Wait(*cuda.backend);
      gated.ExpectRounded(out.Values());
    }
  }
}

}  // namespace
}  // namespace bulkhead
