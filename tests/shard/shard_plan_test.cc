#include "shard/shard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

bool IsSubtreeSize(int size) { return size == 1 || size == 2 || size == 4 || size == 8; }

ShardPlan PlanOf(const ModelConfig& config, int size) {
  auto plan = ShardPlan::Create(config, size);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

ModelConfig ConfigWithHeads(int heads, int kv_heads) {
  ModelConfig config = SmallConfig();
  config.num_attention_heads = heads;
  config.num_key_value_heads = kv_heads;
  return config;
}

std::vector<int64_t> HeadsPerLeaf(int heads, int kv_heads) {
  const ShardPlan plan = PlanOf(ConfigWithHeads(heads, kv_heads), 1);
  const std::vector<int64_t>& borders = plan.rank(0).head_borders;
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < borders.size(); ++i) sizes.push_back(borders[i] - borders[i - 1]);
  return sizes;
}

std::vector<int64_t> HeadsPerRank(int heads, int kv_heads, int size) {
  const ShardPlan plan = PlanOf(ConfigWithHeads(heads, kv_heads), size);
  std::vector<int64_t> sizes;
  for (int rank = 0; rank < size; ++rank) sizes.push_back(plan.rank(rank).heads.size());
  return sizes;
}

std::vector<int64_t> SizesOf(const std::vector<Range>& ranges) {
  std::vector<int64_t> sizes;
  for (const Range& range : ranges) sizes.push_back(range.size());
  return sizes;
}

// Fixtures, and random ones of any shape that a config may have.
std::vector<ModelConfig> ManyConfigs() {
  std::vector<ModelConfig> configs;
  for (const std::string& dir : FixtureDirs()) configs.push_back(FixtureConfig(dir));
  std::mt19937 random(20240607);
  for (int i = 0; i < 200; ++i) {
    const int kv_heads = 1 + static_cast<int>(random() % 12);
    ModelConfig config = ConfigWithHeads(kv_heads * (1 + static_cast<int>(random() % 9)), kv_heads);
    config.head_dim = 2 * (1 + static_cast<int>(random() % 40));
    config.intermediate_size = 16 + static_cast<int>(random() % 3000);
    config.vocab_size = 16 + static_cast<int>(random() % 3000);
    configs.push_back(config);
  }
  return configs;
}

void ExpectKvHeadsMatch(const ModelConfig& config, const RankShard& shard) {
  const int64_t group = config.num_attention_heads / config.num_key_value_heads;
  ASSERT_EQ(shard.head_to_kv.size(), static_cast<size_t>(shard.heads.size()));
  std::vector<bool> is_read(shard.kv_heads.size(), false);
  for (int64_t h = 0; h < shard.heads.size(); ++h) {
    EXPECT_EQ(shard.kv_heads.begin + shard.head_to_kv[h], (shard.heads.begin + h) / group);
    ASSERT_LT(shard.head_to_kv[h], shard.kv_heads.size());
    is_read[shard.head_to_kv[h]] = true;
  }
  for (const bool read : is_read) EXPECT_TRUE(read) << "a KV head that no head reads";
}

void ExpectBorders(const std::vector<int64_t>& borders, int size, int64_t cols) {
  ASSERT_EQ(borders.size(), IsSubtreeSize(size) ? 8U / size + 1 : 2U);
  EXPECT_EQ(borders.front(), 0);
  EXPECT_EQ(borders.back(), cols);
  EXPECT_TRUE(std::is_sorted(borders.begin(), borders.end()));
}

TEST(ShardPlanTest, RangesCoverTheModelExactlyOnceInOrder) {
  for (const ModelConfig& config : ManyConfigs()) {
    for (int size = 1; size <= 16; ++size) {
      SCOPED_TRACE(absl::StrCat(config.num_attention_heads, " heads, ", config.num_key_value_heads,
                                " KV heads, size ", size));
      const ShardPlan plan = PlanOf(config, size);
      ASSERT_EQ(plan.size(), size);
      int64_t heads = 0;
      // Of the MLP, the experts and the shared expert; 0: the model has none.
      const int64_t widths[] = {config.intermediate_size, config.moe.intermediate_size,
                                config.moe.shared_intermediate_size};
      int64_t columns[] = {0, 0, 0};
      int64_t vocab = 0;
      for (int rank = 0; rank < size; ++rank) {
        const RankShard& shard = plan.rank(rank);
        EXPECT_EQ(shard.heads.begin, heads);
        EXPECT_EQ(shard.vocab.begin, vocab);
        EXPECT_GE(shard.heads.size(), 0);
        EXPECT_GT(shard.vocab.size(), 0);
        ExpectKvHeadsMatch(config, shard);
        ExpectBorders(shard.head_borders, size, shard.heads.size());
        const Range owned[] = {shard.mlp, shard.expert_mlp, shard.shared_mlp};
        const std::vector<int64_t>* borders[] = {&shard.mlp_borders, &shard.expert_mlp_borders,
                                                 &shard.shared_mlp_borders};
        for (int i = 0; i < 3; ++i) {
          EXPECT_EQ(owned[i].begin, columns[i]);
          EXPECT_EQ(owned[i].empty(), widths[i] == 0);
          ExpectBorders(*borders[i], size, owned[i].size());
          columns[i] = owned[i].end;
        }
        heads = shard.heads.end;
        vocab = shard.vocab.end;
      }
      EXPECT_EQ(heads, config.num_attention_heads);
      EXPECT_THAT(columns, testing::ElementsAreArray(widths));
      EXPECT_EQ(vocab, config.vocab_size);
    }
  }
}

// The borders of all ranks' leaves, in heads or MLP columns of the whole model.
std::vector<int64_t> AllLeaves(const ShardPlan& plan, bool of_attention) {
  std::vector<int64_t> leaves = {0};
  for (int rank = 0; rank < plan.size(); ++rank) {
    const RankShard& shard = plan.rank(rank);
    const auto& borders = of_attention ? shard.head_borders : shard.mlp_borders;
    const int64_t begin = of_attention ? shard.heads.begin : shard.mlp.begin;
    for (size_t i = 1; i < borders.size(); ++i) leaves.push_back(begin + borders[i]);
  }
  return leaves;
}

TEST(ShardPlanTest, TwoFourAndEightRanksHaveTheLeavesOfOne) {
  for (const ModelConfig& config : ManyConfigs()) {
    const ShardPlan whole = PlanOf(config, 1);
    for (const int size : {2, 4, 8}) {
      const ShardPlan plan = PlanOf(config, size);
      EXPECT_EQ(AllLeaves(plan, true), AllLeaves(whole, true));
      EXPECT_EQ(AllLeaves(plan, false), AllLeaves(whole, false));
    }
  }
}

TEST(ShardPlanTest, AttentionIsCutAtGroupsFirstAndThenAtHeads) {
  EXPECT_THAT(HeadsPerLeaf(8, 8), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(HeadsPerLeaf(32, 8), ElementsAre(4, 4, 4, 4, 4, 4, 4, 4));
  EXPECT_THAT(HeadsPerLeaf(6, 3), ElementsAre(1, 1, 1, 1, 1, 0, 1, 0));
  EXPECT_THAT(HeadsPerLeaf(14, 2), ElementsAre(2, 2, 2, 1, 2, 2, 2, 1));
  EXPECT_THAT(HeadsPerLeaf(28, 4), ElementsAre(4, 3, 4, 3, 4, 3, 4, 3));
  EXPECT_THAT(HeadsPerLeaf(24, 3), ElementsAre(4, 4, 4, 4, 2, 2, 2, 2));
  EXPECT_THAT(HeadsPerLeaf(4, 1), ElementsAre(1, 0, 1, 0, 1, 0, 1, 0));
  EXPECT_THAT(HeadsPerLeaf(1, 1), ElementsAre(1, 0, 0, 0, 0, 0, 0, 0));
}

TEST(ShardPlanTest, OtherSizesShareInProportion) {
  EXPECT_THAT(HeadsPerRank(6, 3, 3), ElementsAre(2, 2, 2));
  EXPECT_THAT(HeadsPerRank(8, 4, 3), ElementsAre(4, 2, 2));
  EXPECT_THAT(HeadsPerRank(6, 3, 5), ElementsAre(1, 1, 2, 1, 1));
  EXPECT_THAT(HeadsPerRank(14, 2, 3), ElementsAre(4, 3, 7));
  EXPECT_THAT(HeadsPerRank(8, 1, 3), ElementsAre(3, 2, 3));
  EXPECT_THAT(HeadsPerRank(2, 1, 3), ElementsAre(1, 0, 1));
  EXPECT_THAT(SizesOf(PartitionEvenly(231, 2)), ElementsAre(116, 115));
  EXPECT_THAT(SizesOf(PartitionEvenly(10, 3)), ElementsAre(4, 3, 3));
  EXPECT_THAT(SizesOf(PartitionEvenly(5, 8)), ElementsAre(1, 1, 1, 0, 1, 0, 1, 0));
}

TEST(ShardPlanTest, SharesCutAtGroupsInProportion) {
  const auto kv_heads = [](const std::vector<int64_t>& shares) {
    const auto plan = ShardPlan::CreateWithShares(ConfigWithHeads(16, 8), shares);
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::vector<int64_t> counts;
    int64_t next_head = 0;
    int64_t next_column = 0;
    for (int rank = 0; rank < plan->size(); ++rank) {
      const RankShard& shard = plan->rank(rank);
      EXPECT_EQ(shard.heads.begin, next_head);
      EXPECT_EQ(shard.mlp.begin, next_column);
      EXPECT_FALSE(shard.vocab.empty());
      EXPECT_EQ(shard.heads.size(), 2 * shard.kv_heads.size());
      next_head = shard.heads.end;
      next_column = shard.mlp.end;
      counts.push_back(shard.kv_heads.size());
    }
    EXPECT_EQ(next_head, 16);
    EXPECT_EQ(next_column, SmallConfig().intermediate_size);
    return counts;
  };
  EXPECT_THAT(kv_heads({3, 2}), ElementsAre(5, 3));
  EXPECT_THAT(kv_heads({2, 1, 1}), ElementsAre(4, 2, 2));
  EXPECT_THAT(kv_heads({1, 1000000}), ElementsAre(1, 7));
  EXPECT_THAT(kv_heads({1000000, 1, 1}), ElementsAre(6, 1, 1));
  const auto refused = ShardPlan::CreateWithShares(ConfigWithHeads(16, 2), {2, 1, 1});
  EXPECT_EQ(ExitCodeOf(refused.status()), ExitCode::kModelRefused);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("num_key_value_heads is 2"));
}

TEST(ShardPlanTest, HeadsOfLatentAttentionHaveOneKvHeadOnEveryRank) {
  ModelConfig config = ConfigWithHeads(16, 1);
  config.latent.kv_rank = 32;
  for (const int size : {1, 2, 3, 8}) {
    const ShardPlan plan = PlanOf(config, size);
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(plan.rank(rank).kv_heads, (Range{0, 1}));
  }
  const auto plan = ShardPlan::CreateWithShares(config, {3, 1});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rank(0).heads, (Range{0, 12}));
  EXPECT_EQ(plan->rank(1).kv_heads, (Range{0, 1}));
  const auto refused = ShardPlan::CreateWithShares(config, std::vector<int64_t>(17, 1));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("num_attention_heads is 16"));
}

TEST(ShardPlanTest, ARankWithoutHeadsIsLegal) {
  const ShardPlan plan = PlanOf(ConfigWithHeads(4, 1), 8);
  const RankShard& idle = plan.rank(1);
  EXPECT_TRUE(idle.heads.empty());
  EXPECT_TRUE(idle.kv_heads.empty());
  EXPECT_THAT(idle.head_borders, ElementsAre(0, 0));
  EXPECT_GT(idle.mlp.size(), 0);
}

TEST(ShardPlanTest, KvHeadsAreReplicatedWhereAGroupIsCut) {
  const auto held = [](int kv_heads, int size) {
    const ShardPlan plan = PlanOf(ConfigWithHeads(8, kv_heads), size);
    int64_t heads = 0;
    for (int rank = 0; rank < size; ++rank) heads += plan.rank(rank).kv_heads.size();
    return heads;
  };
  EXPECT_EQ(held(4, 4), 4);
  EXPECT_EQ(held(4, 8), 8);
  EXPECT_EQ(held(1, 2), 2);
  EXPECT_EQ(held(1, 1), 1);
}

// A sum over KV heads has each once, and in the same leaf at every group size.
TEST(ShardPlanTest, AKvHeadCountsInTheLeafOfItsFirstQueryHead) {
  const auto counted = [](const ShardPlan& plan) {
    std::vector<std::vector<int64_t>> leaves;
    for (int rank = 0; rank < plan.size(); ++rank) {
      const RankShard& shard = plan.rank(rank);
      EXPECT_EQ(shard.kv_head_borders.size(), shard.head_borders.size());
      for (size_t i = 1; i < shard.kv_head_borders.size(); ++i) {
        std::vector<int64_t>& leaf = leaves.emplace_back();
        for (int64_t head = shard.kv_head_borders[i - 1]; head < shard.kv_head_borders[i]; ++head) {
          leaf.push_back(shard.kv_heads.begin + head);
        }
      }
    }
    return leaves;
  };
  for (const ModelConfig& config : ManyConfigs()) {
    const auto whole = counted(PlanOf(config, 1));
    std::vector<int64_t> all;
    for (const auto& leaf : whole) all.insert(all.end(), leaf.begin(), leaf.end());
    std::vector<int64_t> expected(config.num_key_value_heads);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
    for (const int size : {2, 4, 8}) EXPECT_EQ(counted(PlanOf(config, size)), whole);
  }
  EXPECT_THAT(PlanOf(ConfigWithHeads(8, 1), 2).rank(1).kv_head_borders, ElementsAre(1, 1, 1, 1, 1));
}

TEST(ShardPlanTest, WhatCannotBeSplitIsRefusedByName) {
  ModelConfig config = SmallConfig();
  config.intermediate_size = 5;
  EXPECT_TRUE(ShardPlan::Create(config, 5).ok());
  const absl::Status narrow = ShardPlan::Create(config, 8).status();
  EXPECT_EQ(narrow.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExitCodeOf(narrow), ExitCode::kModelRefused);
  EXPECT_THAT(std::string(narrow.message()), HasSubstr("intermediate_size is 5"));
  EXPECT_THAT(std::string(narrow.message()), HasSubstr("the largest group that works has 5"));

  config = SmallConfig();
  config.vocab_size = 7;
  EXPECT_THAT(std::string(ShardPlan::Create(config, 8).status().message()),
              HasSubstr("vocab_size is 7"));
  EXPECT_FALSE(ShardPlan::Create(config, 0).ok());
  EXPECT_FALSE(ShardPlan::Create(config, -3).ok());
}

}  // namespace
}  // namespace bulkhead
