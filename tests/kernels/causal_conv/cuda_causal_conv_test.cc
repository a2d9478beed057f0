#include "tests/kernels/causal_conv/conv_steps.h"
#include "tests/kernels/cuda/padded_matrix.h"

namespace bulkhead {
namespace {

TEST(CudaCausalConvTest, IsThatOfTheReference) {
  for (const int taps : {2, 3, 4, 16}) {
    for (const int channels : {1, 31, 300}) {
      SCOPED_TRACE(testing::Message() << taps << " taps, " << channels << " channels");
      ExpectLikeReference(
          [&](Backend& backend) {
            return RunConv(backend, taps, channels, 1, {1, 5, 2, 20, 1, 64, 150, 1});
          },
          kNormTolerance);
    }
  }
}

TEST(CudaCausalConvTest, StepsOfAnySizeGiveTheSameBits) {
  CudaUnderTest cuda;
  const std::vector<float> whole = RunConv(*cuda.backend, 4, 33, 0, {140});
  for (const std::vector<int>& steps :
       {std::vector<int>(140, 1), {7, 7, 7, 7, 7, 105}, {1, 139}, {3, 1, 136}, {64, 76}}) {
    ExpectSameBits(RunConv(*cuda.backend, 4, 33, 2, steps), whole);
  }
}

}  // namespace
}  // namespace bulkhead
