#include "runtime/engine/candidates.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

SampleRow Row(float temperature, int top_k) {
  SampleRow row;
  row.sampling.temperature = temperature;
  row.sampling.top_k = top_k;
  return row;
}

void Ban(SampleRow& row, int count) {
  row.banned.resize(count);
  std::iota(row.banned.begin(), row.banned.end(), 0);
}

TEST(CandidatesTest, GreedyAndTopKRowsSampleFromCandidatesAndOthersDoNot) {
  EXPECT_TRUE(SamplesFromCandidates(Row(0, 0)));
  EXPECT_TRUE(SamplesFromCandidates(Row(0, 100000)));  // top_k is ignored for a greedy row
  EXPECT_TRUE(SamplesFromCandidates(Row(1, 1)));
  EXPECT_TRUE(SamplesFromCandidates(Row(1, kCandidates)));
  EXPECT_FALSE(SamplesFromCandidates(Row(1, kCandidates + 1)));
  EXPECT_FALSE(SamplesFromCandidates(Row(1, 0)));
}

TEST(CandidatesTest, WhatOnlyDropsCandidatesChangesNothing) {
  SampleRow row = Row(1, 40);
  row.sampling.top_p = 0.9F;
  row.sampling.min_p = 0.1F;
  EXPECT_TRUE(SamplesFromCandidates(row));
  row.sampling.top_k = 0;
  EXPECT_FALSE(SamplesFromCandidates(row));
}

TEST(CandidatesTest, BannedIdsMayAllBeAmongTheLikeliest) {
  SampleRow row = Row(1, 200);
  Ban(row, 56);
  EXPECT_TRUE(SamplesFromCandidates(row));
  Ban(row, 57);
  EXPECT_FALSE(SamplesFromCandidates(row));
  SampleRow greedy = Row(0, 0);
  Ban(greedy, kCandidates - 1);
  EXPECT_TRUE(SamplesFromCandidates(greedy));
  Ban(greedy, kCandidates);
  EXPECT_FALSE(SamplesFromCandidates(greedy));
}

TEST(CandidatesTest, LogProbabilitiesNeedEveryLogit) {
  SampleRow row = Row(0, 0);
  row.num_logprobs = 0;
  EXPECT_FALSE(SamplesFromCandidates(row));
}

TEST(CandidatesTest, ChangesToLogitsNeedEveryLogit) {
  LogitsParams params;
  params.bias = {{3, 1.0F}};
  const LogitsProcessor processor(params);
  SampleRow row = Row(0, 0);
  row.logits = &processor;
  EXPECT_FALSE(SamplesFromCandidates(row));
}

class AnyRows final : public LogitsSink {
 public:
  absl::Status OnRows(int64_t, int64_t, int64_t, const float*) override { return {}; }
};

TEST(CandidatesTest, APlanSaysWhichSequencesDrawFromThem) {
  ToyLoop loop(ToyLimits());  // 16 tokens in a step
  AnyRows rows;
  Request greedy = ToyRequest(2, 5, 1);
  greedy.sampling.temperature = 0;
  Request warm = ToyRequest(2, 5, 2);
  warm.sampling.temperature = 1;
  Request handed_out = ToyRequest(2, 5, 3);
  handed_out.sampling.temperature = 0;
  handed_out.prompt_logits = &rows;
  Request chunked = ToyRequest(20, 5, 4);
  chunked.sampling.temperature = 0;
  for (const Request& request : {greedy, warm, handed_out, chunked}) {
    ASSERT_TRUE(loop.scheduler().Submit(request).ok());
  }
  const auto flags = [&] {
    loop.Step();
    const auto& all = loop.plan().from_candidates();
    return std::vector<bool>(all.begin(), all.end());
  };
  EXPECT_THAT(flags(), testing::ElementsAre(true, false, false, false));
  EXPECT_THAT(flags(), testing::ElementsAre(true, false, true, true));
}

}  // namespace
}  // namespace bulkhead
