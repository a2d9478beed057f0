#include "runtime/engine/drafts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/engine/step_runner.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<TokenId> Draft(const std::vector<TokenId>& tokens, int most, int least, int length,
                           int64_t places = kPlacesOfStep) {
  const DraftOptions drafts = {length, most, least};
  return DraftByLookup(tokens, drafts, length, places);
}

TEST(NgramDraftsTest, WhatFollowedTheLongestOfTheEarlierPlacesIsTheDraft) {
  EXPECT_THAT(Draft({1, 2, 3, 40, 9, 3, 50, 8, 1, 2, 3}, 3, 1, 2), ElementsAre(40, 9));
  // Of equally long ones the latest.
  EXPECT_THAT(Draft({2, 3, 40, 2, 3, 50, 2, 3}, 2, 1, 1), ElementsAre(50));
  // No more than prompt_lookup_max tokens are compared.
  EXPECT_THAT(Draft({1, 2, 3, 40, 9, 2, 3, 50, 1, 2, 3}, 2, 1, 1), ElementsAre(50));
}

TEST(NgramDraftsTest, AShorterMatchThanTheLeastIsNone) {
  EXPECT_THAT(Draft({7, 3, 40, 1, 3}, 4, 2, 3), IsEmpty());
  EXPECT_THAT(Draft({7, 3, 40, 1, 3}, 4, 1, 3), ElementsAre(40, 1, 3));
  EXPECT_THAT(Draft({1}, 4, 1, 3), IsEmpty());
  EXPECT_THAT(Draft({}, 4, 1, 3), IsEmpty());
}

TEST(NgramDraftsTest, WhatRepeatsGoesOnIntoTheDraft) {
  EXPECT_THAT(Draft({9, 1, 2, 1, 2}, 2, 2, 5), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_THAT(Draft({4, 4}, 1, 1, 3), ElementsAre(4, 4, 4));
}

TEST(NgramDraftsTest, GivenRowsAreNotDrafted) {
  EXPECT_THAT(Draft({1, 2, 5, kGivenRow, 6, 1, 2}, 2, 2, 4), ElementsAre(5));
}

TEST(NgramDraftsTest, NoMorePlacesAreComparedThanAreLeft) {
  const std::vector<TokenId> tokens = {1, 2, 5, 0, 0, 0, 0, 1, 2};
  EXPECT_THAT(Draft(tokens, 2, 2, 1, 6), IsEmpty());
  EXPECT_THAT(Draft(tokens, 2, 2, 1, 7), ElementsAre(5));
  int64_t places = 100;
  DraftByLookup(tokens, {1, 2, 2}, 1, places);
  EXPECT_EQ(places, 93);
  DraftByLookup({}, {1, 2, 2}, 1, places);
  EXPECT_EQ(places, 93);
}

TEST(DraftAcceptanceTest, DraftsGrowWhileTheyAreAcceptedAndEndWhereTheyAreNot) {
  DraftAcceptance good;
  DraftAcceptance bad;
  const int first = good.NextLength(0.2, 16);
  EXPECT_EQ(first, 2);
  int drafted = 0;
  int tokens = 0;
  for (int i = 0; i < 1000; ++i) {
    const int length = good.NextLength(0.2, 16);
    good.Record(length, length, length + 1);
    const int wrong = bad.NextLength(0.2, 16);
    bad.Record(wrong, 0, 1);
    drafted += wrong;
    ++tokens;
  }
  EXPECT_EQ(good.NextLength(0.2, 16), 16);
  EXPECT_EQ(bad.NextLength(0.2, 16), 0);
  // Each takes a fifth of a token's time.
  EXPECT_LT(0.2 * drafted, 0.03 * tokens);
  EXPECT_GT(drafted, 5);
}

TEST(DraftAcceptanceTest, WhereADraftTakesAsLongAsATokenItIsTriedNowAndThen) {
  DraftAcceptance acceptance;
  int drafted = 0;
  for (int i = 0; i < 1000; ++i) {
    const int length = acceptance.NextLength(1, 16);
    ASSERT_LE(length, 1);
    acceptance.Record(length, 0, 1);
    drafted += length;
  }
  EXPECT_LT(drafted, 30);
  EXPECT_GT(drafted, 20);
}

TEST(DraftAcceptanceTest, StepsWaitMoreRarelyUntilADraftIsAccepted) {
  DraftAcceptance acceptance;
  const auto waits = [&acceptance] {
    int count = 0;
    for (uint64_t step = 1; step <= 64; ++step) count += acceptance.Awaits(step) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(waits(), 64);
  acceptance.FoundNone();
  EXPECT_EQ(waits(), 32);
  acceptance.Record(2, 0, 1);
  EXPECT_EQ(waits(), 16);
  acceptance.Record(0, 0, 1);  // there was no draft to accept
  EXPECT_EQ(waits(), 16);
  for (int i = 0; i < 10; ++i) acceptance.FoundNone();
  EXPECT_EQ(waits(), 4);
  acceptance.Record(2, 1, 2);
  EXPECT_EQ(waits(), 64);
}

TEST(DecodeCostTest, ALineThroughTheStepsSaysWhatAnotherTokenCosts) {
  DecodeCost cost;
  const double unknown = cost.OfAnotherEach(1);
  EXPECT_GT(unknown, 0);
  for (int i = 0; i < 50; ++i) cost.Record(1, 0.010);
  EXPECT_EQ(cost.OfAnotherEach(1), unknown);
  for (int i = 0; i < 100; ++i) cost.Record(1 + i % 4, 0.009 + 0.001 * (1 + i % 4));
  EXPECT_NEAR(cost.OfAnotherEach(1), 0.1, 0.01);
  EXPECT_NEAR(cost.OfAnotherEach(9), 0.5, 0.05);
  // Steps that something held up hardly count, and older steps less and less.
  cost.Record(1, 100);
  EXPECT_NEAR(cost.OfAnotherEach(1), 0.1, 0.05);
  for (int i = 0; i < 2000; ++i) cost.Record(1 + i % 4, 0.005 * (1 + i % 4));
  EXPECT_NEAR(cost.OfAnotherEach(1), 1, 0.01);
}

TEST(DecodeCostTest, TheLineSaysWhatAStepTakes) {
  DecodeCost cost;
  EXPECT_EQ(cost.Seconds(1), 0);
  for (int i = 0; i < 50; ++i) cost.Record(2, 0.010);
  EXPECT_NEAR(cost.Seconds(1), 0.010, 1e-9);  // no line yet
  EXPECT_NEAR(cost.MeanSeconds(), 0.010, 1e-9);
  for (int i = 0; i < 100; ++i) cost.Record(1 + i % 4, 0.009 + 0.001 * (1 + i % 4));
  EXPECT_NEAR(cost.Seconds(1), 0.010, 0.001);
  EXPECT_NEAR(cost.Seconds(11), 0.020, 0.002);
}

TEST(DraftAllowanceTest, WhatIsSpentBeyondWhatWasSavedComesBackWithOtherSteps) {
  DraftAllowance allowance;
  allowance.Add(1000);  // saved, and forgotten beyond a hundred steps
  EXPECT_TRUE(allowance.is_left());
  allowance.Add(-101);
  EXPECT_FALSE(allowance.is_left());
  int steps = 0;
  for (; !allowance.is_left(); ++steps) allowance.Add(DraftAllowance::kShare);
  EXPECT_NEAR(steps, 40, 1);
  allowance.Add(-1e9);  // and so it is after the longest step
  for (steps = 0; !allowance.is_left() && steps < 5000; ++steps) {
    allowance.Add(DraftAllowance::kShare);
  }
  EXPECT_NEAR(steps, 1000, 1);
}

TEST(DraftModelTest, ItsStepsHoldTwoTokensOfEachSequenceAndAPieceOfWhatItHasNotSeen) {
  Limits limits = {.max_num_seqs = 10, .max_num_batched_tokens = 2048};
  EXPECT_EQ(UnseenTokens(limits), 256);
  EXPECT_EQ(DraftStepTokens(limits), 276);
  limits.max_num_batched_tokens = 8;
  EXPECT_EQ(DraftStepTokens(limits), 8);
}

TEST(DraftTotalsTest, TokensAreCountedByTheirPlaceInTheDraft) {
  DraftTotals totals;
  totals.Count(0, 0);
  totals.Count(3, 2);
  totals.Count(2, 0);
  EXPECT_EQ(totals.drafts, 2U);
  EXPECT_EQ(totals.draft_tokens, 5U);
  EXPECT_EQ(totals.accepted_tokens, 2U);
  EXPECT_EQ(totals.accepted_by_position[0], 1U);
  EXPECT_EQ(totals.accepted_by_position[1], 1U);
  EXPECT_EQ(totals.accepted_by_position[2], 0U);
}

}  // namespace
}  // namespace bulkhead
