#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

TEST(CudaSumHeadSquaresTest, IsThatOfTheReference) {
  const std::vector<int64_t> q = {0, 2, 5};
  const std::vector<int64_t> k = {1, 2, 2};
  const auto run = [&](Backend& backend) {
    PaddedMatrix qkv(kRows, (5 + 2 * 2) * 24, 8);
    PaddedMatrix squares = PaddedMatrix::Unwritten(kRows, 2);
    backend.SumHeadSquares({5, 2, 24, nullptr}, {q, k}, qkv.View(), squares.View());
    Wait(backend);
    return squares.Values();
  };
  ExpectLikeReference(run, kNormTolerance);
}

}  // namespace
}  // namespace bulkhead
