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

TEST(CandidatesTest, RowsWithoutTopKAreSampledWhole) {
  EXPECT_TRUE(SamplesFromRow(Row(1, 0)));
  EXPECT_FALSE(SamplesFromRow(Row(0, 0)));
  EXPECT_FALSE(SamplesFromRow(Row(1, 1)));
  EXPECT_FALSE(SamplesFromRow(Row(1, kCandidates + 1)));
  SampleRow row = Row(1, 0);
  row.sampling.top_p = 0.9F;
  row.sampling.min_p = 0.1F;
  EXPECT_TRUE(SamplesFromRow(row));
  EXPECT_EQ(TokenSamplingOf(row, 3, 0).top_k, 0);
  Ban(row, kCandidates);
  EXPECT_TRUE(SamplesFromRow(row));
  Ban(row, kCandidates + 1);
  EXPECT_FALSE(SamplesFromRow(row));
}

TEST(CandidatesTest, LogProbabilitiesAreTheHosts) {
  for (SampleRow row : {Row(0, 0), Row(1, 0)}) {
    row.num_logprobs = 0;
    EXPECT_FALSE(SamplesFromCandidates(row));
    EXPECT_FALSE(SamplesFromRow(row));
  }
}

TEST(CandidatesTest, ChangesToLogitsAreTheHosts) {
  LogitsParams params;
  params.bias = {{3, 1.0F}};
  const LogitsProcessor processor(params);
  for (SampleRow row : {Row(0, 0), Row(1, 0)}) {
    row.logits = &processor;
    EXPECT_FALSE(SamplesFromCandidates(row));
    EXPECT_FALSE(SamplesFromRow(row));
  }
}

class AnyRows final : public LogitsSink {
 public:
  absl::Status OnRows(int64_t, int64_t, int64_t, const float*) override { return {}; }
};

TEST(CandidatesTest, APlanSaysFromWhatItsSequencesAreSampled) {
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
  const auto sources = [&] {
    loop.Step();
    std::vector<SampleSource> all;
    for (int s = 0; s < loop.plan().slot_size(); ++s) all.push_back(SampleSourceOf(loop.plan(), s));
    return all;
  };
  using enum SampleSource;
  EXPECT_THAT(sources(), testing::ElementsAre(kCandidates, kRow, kHost, kHost));
  EXPECT_THAT(sources(), testing::ElementsAre(kCandidates, kRow, kCandidates, kCandidates));
}

}  // namespace
}  // namespace bulkhead
