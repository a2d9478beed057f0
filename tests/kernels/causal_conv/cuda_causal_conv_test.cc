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

TEST(CudaCausalConvTest, RejectedDraftsLeaveTheInputsBeforeThem) {
  CudaUnderTest cuda;
  for (const int taps : {2, 4, 16}) {
    const std::vector<float> whole = RunConv(*cuda.backend, taps, 33, 0, {150});
    for (const int drafts : {1, 3, 16}) {
      for (const std::vector<int>& steps : {std::vector<int>(150, 1), {70, 1, 2, 64, 1, 12}}) {
        ExpectSameBits(RunConv(*cuda.backend, taps, 33, 2, steps, drafts), whole);
      }
    }
  }
}

}  // namespace
}  // namespace bulkhead
