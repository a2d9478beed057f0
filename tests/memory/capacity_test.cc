#include "memory/capacity.h"

#include <gtest/gtest.h>

#include <random>

namespace bulkhead {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kBlock = 16;

// Activations grow with the chunk, block tables with rows x length, workspace with the length; a
// block is 1 MiB.
RankNeeds Needs(const Limits& limits) {
  RankNeeds needs;
  needs.category_bytes[static_cast<int>(MemoryCategory::kWeights)] = 100 * kMiB;
  needs.category_bytes[static_cast<int>(MemoryCategory::kActivations)] =
      int64_t{limits.max_num_batched_tokens} * 10240;
  needs.category_bytes[static_cast<int>(MemoryCategory::kBlockTables)] =
      int64_t{limits.max_num_seqs} * (limits.max_model_len / kBlock) * 4;
  needs.category_bytes[static_cast<int>(MemoryCategory::kWorkspace)] =
      kMiB + int64_t{limits.max_model_len} * 64;
  needs.kv_block_bytes = kMiB;
  return needs;
}

RankNeeds NeedsOfAny(int /*rank*/, const Limits& limits) { return Needs(limits); }

DeviceBudget Cap(int rank, int64_t total_bytes) {
  DeviceBudget budget;
  budget.rank = rank;
  budget.host = "node" + std::to_string(rank);
  budget.device = "cpu";
  budget.total_bytes = total_bytes;
  return budget;
}

DeviceBudget Probed(int64_t total_bytes, int64_t others_bytes) {
  DeviceBudget budget = Cap(0, total_bytes);
  budget.others_bytes = others_bytes;
  budget.probed = true;
  return budget;
}

CapacityRequest Request() {
  CapacityRequest request;
  request.start = {64, 32768, 2048, kBlock};
  return request;
}

CapacityRequest Given(int seqs, int len, int chunk) {
  CapacityRequest request = Request();
  request.given.max_num_seqs = seqs;
  request.given.max_model_len = len;
  request.given.max_num_batched_tokens = chunk;
  return request;
}

Capacity Plan(const std::vector<DeviceBudget>& budgets, const CapacityRequest& request) {
  return PlanCapacity(budgets, request, NeedsOfAny);
}

TEST(CapacityTest, TheTightestRankSetsThePoolAndIsNamed) {
  const Capacity plan =
      Plan({Cap(0, 400 * kMiB), Cap(1, 300 * kMiB), Cap(2, 350 * kMiB)}, Given(100, 128, 64));
  ASSERT_TRUE(plan.fits);
  EXPECT_EQ(plan.binding_rank, 1);
  EXPECT_EQ(plan.limiting_category, MemoryCategory::kKv);
  EXPECT_EQ(plan.limits.num_kv_blocks, plan.ranks[1].own_blocks);
  EXPECT_EQ(plan.ranks[1].stranded_bytes, 0);
  EXPECT_EQ(plan.ranks[0].stranded_bytes, 100 * kMiB);
  EXPECT_EQ(plan.ranks[2].stranded_bytes, 50 * kMiB);
  for (const RankCapacity& rank : plan.ranks) {
    int64_t sum = rank.free_bytes;
    for (const int64_t bytes : rank.arena_bytes) sum += bytes;
    EXPECT_EQ(sum, rank.budget.total_bytes);
    EXPECT_GE(rank.free_bytes, 0);
  }
}

TEST(CapacityTest, WithoutARuleNoMoreThanMaxNumSeqsFullSequencesAreTaken) {
  const Capacity plan = Plan({Cap(0, 10000 * kMiB)}, Given(4, 128, 64));
  ASSERT_TRUE(plan.fits);
  EXPECT_EQ(plan.limits.num_kv_blocks, 32);
  EXPECT_EQ(plan.full_sequences, 4);
}

TEST(CapacityTest, OfAProbedDeviceHalfIsLeftButForOneSequence) {
  const CapacityRequest request = Given(100, 128, 64);
  const int64_t arenas = 100 * kMiB + 64 * 10240 + 100 * 8 * 4 + kMiB + 128 * 64;
  EXPECT_EQ(Plan({Probed(arenas + 60 * kMiB, 0)}, request).limits.num_kv_blocks, 30);
  EXPECT_EQ(Plan({Probed(arenas + 70 * kMiB, 10 * kMiB)}, request).limits.num_kv_blocks, 30);
  EXPECT_EQ(Plan({Probed(arenas + 9 * kMiB, 0)}, request).limits.num_kv_blocks, 8);
  EXPECT_FALSE(Plan({Probed(arenas + 7 * kMiB, 0)}, request).fits);
}

TEST(CapacityTest, TheFirstClaimThatIsLargerThanWhatIsLeftIsNamed) {
  const CapacityRequest request = Given(4, 128, 2048);
  const Capacity weights = Plan({Cap(0, 99 * kMiB)}, request);
  ASSERT_TRUE(weights.shortage.has_value());
  EXPECT_EQ(weights.shortage->category, MemoryCategory::kWeights);
  EXPECT_EQ(weights.shortage->bytes, kMiB);
  const Capacity activations = Plan({Cap(0, 500 * kMiB), Cap(1, 110 * kMiB)}, request);
  ASSERT_TRUE(activations.shortage.has_value());
  EXPECT_EQ(activations.shortage->category, MemoryCategory::kActivations);
  EXPECT_EQ(activations.shortage->rank, 1);
  EXPECT_EQ(activations.shortage->bytes, 20 * kMiB - 10 * kMiB);
  EXPECT_EQ(activations.limiting_category, MemoryCategory::kActivations);
}

TEST(CapacityTest, TheLeastMemoryStartsAndOneByteLessDoesNot) {
  const KvRule rules[] = {{},
                          {.kind = KvRule::Kind::kUtilization, .fraction = 0.8},
                          {.kind = KvRule::Kind::kShareOfFree, .fraction = 0.5},
                          {.kind = KvRule::Kind::kBlocks, .count = 20},
                          {.kind = KvRule::Kind::kBytes, .count = 12 * kMiB + 1}};
  for (const KvRule& rule : rules) {
    CapacityRequest request = Given(4, 128, 64);
    request.rule = rule;
    DeviceBudget budget = Cap(0, 1000 * kMiB);
    budget.reserve_bytes = 3 * kMiB;
    const int64_t least = Plan({budget}, request).ranks[0].required_bytes;
    budget.total_bytes = least;
    EXPECT_TRUE(Plan({budget}, request).fits) << static_cast<int>(rule.kind);
    EXPECT_EQ(Plan({budget}, request).ranks[0].required_bytes, least);
    budget.total_bytes = least - 1;
    const Capacity refused = Plan({budget}, request);
    ASSERT_TRUE(refused.shortage.has_value()) << static_cast<int>(rule.kind);
    EXPECT_GT(refused.shortage->bytes, 0);
  }
}

TEST(CapacityTest, RulesGiveWhatTheySay) {
  const auto blocks = [](const KvRule& rule) {
    CapacityRequest request = Given(1000, 128, 64);
    request.rule = rule;
    return Plan({Cap(0, 1000 * kMiB)}, request).limits.num_kv_blocks;
  };
  // 900 MiB are free after weights.
  EXPECT_EQ(blocks({.kind = KvRule::Kind::kShareOfFree, .fraction = 0.5}), 450);
  EXPECT_EQ(blocks({.kind = KvRule::Kind::kBlocks, .count = 77}), 77);
  EXPECT_EQ(blocks({.kind = KvRule::Kind::kBytes, .count = 99 * kMiB + 5}), 99);
  // 500 MiB are ours, and the other arenas need 101.x of them.
  EXPECT_EQ(blocks({.kind = KvRule::Kind::kUtilization, .fraction = 0.5}), 398);
}

TEST(CapacityTest, OfARuleInBytesNoRankIsAskedForMoreThanThePoolCanComeTo) {
  CapacityRequest request = Given(4, 128, 64);
  request.rule = {.kind = KvRule::Kind::kBytes, .count = 20 * kMiB};
  // Blocks of 1 MiB on rank 0 and of half on rank 1, which has 11 MiB left for them.
  const auto needs_of = [](int rank, const Limits& limits) {
    RankNeeds needs = Needs(limits);
    if (rank == 1) needs.kv_block_bytes /= 2;
    return needs;
  };
  const std::vector<DeviceBudget> budgets = {Cap(0, 1000 * kMiB), Cap(1, 113 * kMiB)};
  const Capacity plan = PlanCapacity(budgets, request, needs_of);
  ASSERT_TRUE(plan.fits);
  EXPECT_EQ(plan.limits.num_kv_blocks, 20);
  EXPECT_GE(plan.ranks[1].own_blocks, 20);
  std::vector<DeviceBudget> least = budgets;
  for (int rank = 0; rank < 2; ++rank) least[rank].total_bytes = plan.ranks[rank].required_bytes;
  EXPECT_TRUE(PlanCapacity(least, request, needs_of).fits);
  --least[1].total_bytes;
  EXPECT_EQ(PlanCapacity(least, request, needs_of).shortage->rank, 1);
}

TEST(CapacityTest, WhereNoMemoryIsEnoughTheLeastIsNoNumber) {
  for (const KvRule& rule : {KvRule{.kind = KvRule::Kind::kBlocks, .count = 7},
                             KvRule{.kind = KvRule::Kind::kBytes, .count = 8 * kMiB - 1},
                             KvRule{.kind = KvRule::Kind::kUtilization, .fraction = 1e-12},
                             KvRule{.kind = KvRule::Kind::kShareOfFree, .fraction = 1}}) {
    CapacityRequest request = Given(4, 128, 64);
    request.rule = rule;
    const Capacity plan = Plan({Cap(0, 1000 * kMiB), Cap(1, 1000 * kMiB)}, request);
    EXPECT_FALSE(plan.fits);
    for (const RankCapacity& rank : plan.ranks) EXPECT_EQ(rank.required_bytes, 0);
  }
  // Nor may block ids overflow.
  CapacityRequest request = Given(4, 128, 64);
  request.rule = {.kind = KvRule::Kind::kShareOfFree, .fraction = 1};
  const Capacity plan = PlanCapacity(std::vector<DeviceBudget>{Cap(0, 1000 * kMiB)}, request,
                                     [](int /*rank*/, const Limits& limits) {
                                       RankNeeds needs = Needs(limits);
                                       needs.kv_block_bytes = 64;
                                       return needs;
                                     });
  EXPECT_EQ(plan.ranks[0].required_bytes, 0);
}

TEST(CapacityTest, AUtilizationThatOthersDoNotLeaveTakesWhatIsFree) {
  CapacityRequest request = Given(1000, 128, 64);
  request.rule = {.kind = KvRule::Kind::kUtilization, .fraction = 0.9};
  DeviceBudget budget = Probed(1000 * kMiB, 600 * kMiB);
  const Capacity plan = Plan({budget}, request);
  ASSERT_TRUE(plan.fits);
  EXPECT_EQ(plan.limits.num_kv_blocks, 298);
  EXPECT_NE(plan.ranks[0].rule_text.find("others"), std::string::npos);
}

TEST(CapacityTest, AShareThatCollidesWithTheArenasIsRefused) {
  CapacityRequest request = Given(4, 128, 2048);
  request.rule = {.kind = KvRule::Kind::kShareOfFree, .fraction = 1.0};
  const Capacity plan = Plan({Cap(0, 1000 * kMiB)}, request);
  ASSERT_TRUE(plan.shortage.has_value());
  EXPECT_EQ(plan.shortage->category, MemoryCategory::kKv);
}

TEST(CapacityTest, WhatIsNotGivenGivesWayInTurn) {
  const auto limits = [](int64_t total_bytes) {
    return GivenLimits(Plan({Cap(0, total_bytes)}, Request()).limits);
  };
  EXPECT_EQ(limits(100000 * kMiB), GivenLimits(Limits{64, 32768, 2048}));
  // One sequence of 32768 is 2 GiB of KV; 8192 are 512 MiB.
  EXPECT_EQ(limits(700 * kMiB), GivenLimits(Limits{64, 8192, 2048}));
  EXPECT_EQ(limits(377 * kMiB), GivenLimits(Limits{64, 4096, 1024}));
  EXPECT_EQ(limits(366 * kMiB), GivenLimits(Limits{64, 4096, 512}));
  EXPECT_EQ(limits(362 * kMiB), GivenLimits(Limits{16, 2048, 512}));
  EXPECT_EQ(limits(106 * kMiB), GivenLimits(Limits{16, 64, 64}));
}

TEST(CapacityTest, GivenLimitsAreNeverChanged) {
  for (const int64_t total : {50 * kMiB, 110 * kMiB, 200 * kMiB, 1000 * kMiB}) {
    CapacityRequest request = Request();
    request.given.max_model_len = 8192;
    const Capacity plan = Plan({Cap(0, total)}, request);
    EXPECT_EQ(plan.limits.max_model_len, 8192);
    EXPECT_EQ(plan.fits, total == 1000 * kMiB);
  }
}

TEST(CapacityTest, ALengthThatFitsFitsWhenShorter) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const int64_t total = 100 * kMiB + static_cast<int64_t>(random() % 300) * kMiB;
    const int len = 64 + static_cast<int>(random() % 4000);
    if (!Plan({Cap(0, total)}, Given(8, len, 256)).fits) continue;
    EXPECT_TRUE(Plan({Cap(0, total)}, Given(8, 2 + len / 2, 256)).fits) << total << " " << len;
  }
}

TEST(CapacityTest, ARankWithoutHeadsSetsNoLimit) {
  const Capacity plan =
      PlanCapacity(std::vector<DeviceBudget>{Cap(0, 300 * kMiB), Cap(1, 200 * kMiB)},
                   Given(100, 128, 64), [](int rank, const Limits& limits) {
                     RankNeeds needs = Needs(limits);
                     if (rank == 1) needs.kv_block_bytes = 0;
                     return needs;
                   });
  ASSERT_TRUE(plan.fits);
  EXPECT_EQ(plan.binding_rank, 0);
  EXPECT_EQ(plan.ranks[1].arena_bytes[static_cast<int>(MemoryCategory::kKv)], 0);
  EXPECT_EQ(plan.ranks[1].stranded_bytes, 0);
  EXPECT_EQ(plan.ranks[1].own_blocks, 0);
}

TEST(CapacityTest, AbsurdNumbersDoNotOverflow) {
  const auto huge = [](int /*rank*/, const Limits& limits) {
    RankNeeds needs = Needs(limits);
    needs.kv_block_bytes = int64_t{1} << 50;
    return needs;
  };
  for (const KvRule& rule :
       {KvRule{}, KvRule{.kind = KvRule::Kind::kBlocks, .count = (int64_t{1} << 31) - 2},
        KvRule{.kind = KvRule::Kind::kBytes, .count = INT64_MAX}}) {
    CapacityRequest request = Given(65536, 1 << 24, 1 << 20);
    request.rule = rule;
    const Capacity plan =
        PlanCapacity(std::vector<DeviceBudget>{Cap(0, int64_t{1} << 40)}, request, huge);
    ASSERT_TRUE(plan.shortage.has_value());
    EXPECT_GT(plan.shortage->bytes, 0);
  }
}

}  // namespace
}  // namespace bulkhead
