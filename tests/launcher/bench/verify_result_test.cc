#include "launcher/bench/verify_result.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

VerifiedGroup GroupOf(int ranks) {
  VerifiedGroup group;
  group.subject = {{"model", "m"}, {"kv_cache_dtype", "int8"}};
  group.version = "1";
  group.ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) group.hosts.emplace_back(2 * rank < ranks ? "a" : "b");
  group.answers = {{17, false, {1, 2, 3}, {10, 20, 30}, "aa"}, {1, true, {4, 5}, {40, 50}, "bb"}};
  return group;
}

TEST(VerifyResultTest, EqualAnswersAreEqual) {
  const auto comparison = Compare(GroupOf(1), GroupOf(4));
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_TRUE(comparison->ok());
  EXPECT_EQ(comparison->tokens, 5);
  EXPECT_EQ(ComparisonText(GroupOf(1), GroupOf(4), *comparison),
            "4 ranks against 1 (ranks 0-1 on a, 2-3 on b): 2 answers, 5 tokens: all tokens equal; "
            "all logits equal, bit by bit\n");
}

TEST(VerifyResultTest, ATokenThatDiffersIsNamed) {
  VerifiedGroup group = GroupOf(3);
  group.answers[0].tokens[2] = 7;
  group.answers[1].tokens.push_back(6);
  const auto comparison = Compare(GroupOf(1), group);
  ASSERT_TRUE(comparison.ok());
  EXPECT_FALSE(comparison->ok());
  EXPECT_EQ(comparison->differing_answers, 2);
  EXPECT_EQ(comparison->answers[0].first_difference, 2);
  EXPECT_EQ(comparison->answers[1].first_difference, 2);
  EXPECT_THAT(ComparisonText(GroupOf(1), group, *comparison), HasSubstr("differ at 2"));
  const auto json = nlohmann::json::parse(ComparisonJson(GroupOf(1), group, *comparison));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["answers"][0]["first_difference"], 2);
}

TEST(VerifyResultTest, BitsMustBeEqualWhereTheyArePromised) {
  for (const auto& [ranks, equal_shares, promised] : {std::tuple{1, true, true},
                                                      {2, true, true},
                                                      {8, true, true},
                                                      {3, true, false},
                                                      {6, true, false},
                                                      {2, false, false}}) {
    for (const bool of_logits : {false, true}) {
      VerifiedGroup group = GroupOf(ranks);
      group.equal_shares = equal_shares;
      if (of_logits) {
        group.answers[1].logits_sha256 = "cc";
      } else {
        group.answers[1].logprob_bits[0] ^= 1;
      }
      const auto comparison = Compare(GroupOf(1), group);
      ASSERT_TRUE(comparison.ok());
      EXPECT_EQ(comparison->ok(), !promised) << ranks;
      EXPECT_EQ(comparison->differing_bits, 1);
      EXPECT_EQ(comparison->differing_answers, 0);
      const std::string text = ComparisonText(GroupOf(1), group, *comparison);
      EXPECT_EQ(text.find("not promised") == std::string::npos, promised) << text;
    }
  }
}

TEST(VerifyResultTest, OtherModelsFlagsOrPromptsAreNotCompared) {
  VerifiedGroup group = GroupOf(2);
  group.subject["kv_cache_dtype"] = "bfloat16";
  EXPECT_THAT(Compare(GroupOf(1), group).status().message(),
              HasSubstr("kv_cache_dtype int8 and this group bfloat16"));
  group = GroupOf(2);
  group.answers.pop_back();
  EXPECT_FALSE(Compare(GroupOf(1), group).ok());
}

TEST(VerifyResultTest, AnswersAreReadAsTheyWereWritten) {
  VerifiedGroup group = GroupOf(2);
  group.equal_shares = false;
  const auto read = VerifiedGroup::FromJson(group.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), group.ToJson());
  EXPECT_TRUE(Compare(*read, group).ok());
  for (
      const char* text :
      {"", "{}", "[]", R"({"bench": "verify"})", R"({"bench": 3, "subject": {}, "answers": []})",
       R"({"bench": "verify", "subject": {}, "answers": [{}]})",
       R"({"bench": "verify", "subject": {}, "answers": [{"tokens": ["x"], "logprob_bits": []}]})"}) {
    EXPECT_FALSE(VerifiedGroup::FromJson(text).ok()) << text;
  }
}

}  // namespace
}  // namespace bulkhead
