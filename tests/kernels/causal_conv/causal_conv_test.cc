#include "tests/kernels/causal_conv/conv_steps.h"

namespace bulkhead {
namespace {

using CausalConvTest = OpTest;

TEST_P(CausalConvTest, IsASumOverTheLastInputs) {
  for (const int taps : {2, 3, 4, 16}) {
    for (const int channels : {1, 16, 31, 200}) {
      SCOPED_TRACE(testing::Message() << taps << " taps, " << channels << " channels");
      Compare(kNormTolerance, [&](Backend& backend) {
        return RunConv(backend, taps, channels, 1, {1, 5, 2, 20, 1});
      });
    }
  }
}

TEST_P(CausalConvTest, StepsOfAnySizeGiveTheSameBits) {
  const std::vector<float> whole = RunConv(*backend_, 4, 33, 0, {40});
  for (const std::vector<int>& steps :
       {std::vector<int>(40, 1), {7, 7, 7, 7, 7, 5}, {1, 39}, {3, 1, 36}}) {
    ExpectSameBits(RunConv(*backend_, 4, 33, 2, steps), whole);
  }
}

TEST_P(CausalConvTest, RejectedDraftsLeaveTheInputsBeforeThem) {
  for (const int taps : {2, 4, 16}) {
    const std::vector<float> whole = RunConv(*backend_, taps, 33, 0, {90});
    for (const int drafts : {1, 3, 16}) {
      for (const std::vector<int>& steps :
           {std::vector<int>(90, 1), {30, 1, 2, 1, 40, 1, 15}, {80, 10}}) {
        ExpectSameBits(RunConv(*backend_, taps, 33, 2, steps, drafts), whole);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, CausalConvTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
