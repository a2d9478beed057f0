#include <cmath>

#include "tests/kernels/gated_delta/delta_steps.h"

namespace bulkhead {
namespace {

using GatedDeltaTest = OpTest;

TEST_P(GatedDeltaTest, BlocksEqualTheRecurrence) {
  for (const DeltaSizes& sizes :
       {DeltaSizes{1, 1, 16, 16}, DeltaSizes{2, 4, 16, 16}, DeltaSizes{1, 3, 24, 40},
        DeltaSizes{2, 2, 33, 7}, DeltaSizes{1, 2, 128, 128}}) {
    SCOPED_TRACE(testing::Message() << sizes);
    Compare(1e-4, [&](Backend& backend) {
      return RunDelta(backend, sizes, {{1, 3}, {{70, 3}, {1, 60}, {1, 1}, {62, 1}, {9, 70}}});
    });
  }
}

TEST_P(GatedDeltaTest, DecaysFromNoneToAllGiveTheRecurrence) {
  for (const float a_log : {-30.0F, 0.0F, 3.0F, 40.0F}) {
    SCOPED_TRACE(a_log);
    Compare(1e-4, [&](Backend& backend) {
      return RunDelta(backend, {1, 2, 16, 16}, {{0}, {{130}, {1}}}, a_log);
    });
  }
}

TEST_P(GatedDeltaTest, StepsOfAnySizeGiveTheSameBits) {
  const DeltaSizes sizes{2, 4, 20, 24};
  const std::vector<float> whole = RunDelta(*backend_, sizes, {{0}, {{200}}});
  for (const int size : {1, 7, 63, 64, 65}) {
    SCOPED_TRACE(size);
    DeltaSteps steps{{2}, {}};
    for (int done = 0; done < 200; done += size) {
      steps.tokens.push_back({std::min(size, 200 - done)});
    }
    ExpectSameBits(RunDelta(*backend_, sizes, steps), whole);
  }
}

TEST_P(GatedDeltaTest, RejectedDraftsLeaveTheStateBeforeThem) {
  const DeltaSizes sizes{2, 4, 20, 24};
  const std::vector<float> whole = RunDelta(*backend_, sizes, {{0}, {{150}}});
  for (const int drafts : {1, 5, 16}) {
    DeltaSteps steps{{2}, {{60}}, drafts};
    for (int done = 60; done < 150; ++done) steps.tokens.push_back({1});
    ExpectSameBits(RunDelta(*backend_, sizes, steps), whole);
  }
}

// Of two sequences in one step, and in another's slot, a sequence has the bits it has alone.
TEST_P(GatedDeltaTest, SequencesDoNotMix) {
  const DeltaSizes sizes{2, 2, 16, 16};
  const std::vector<float> both =
      RunDelta(*backend_, sizes, {{3, 0}, {{64, 1}, {1, 1}, {30, 90}, {40, 2}}});
  const std::vector<float> first = RunDelta(*backend_, sizes, {{1}, {{135}}});
  ExpectSameBits({both.begin(), both.begin() + static_cast<int64_t>(first.size())}, first);
}

TEST_P(GatedDeltaTest, ANanStaysVisible) {
  const std::vector<float> out =
      RunDelta(*backend_, {1, 1, 16, 16}, {{0}, {{3}}}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(out.back()));
}

INSTANTIATE_TEST_SUITE_P(Variants, GatedDeltaTest, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
