#include "memory/capacity.h"

#include "gtest/gtest.h"
#include "memory/exit_code.h"

namespace bulkhead {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

RankBudget Budget(int rank, int64_t available_bytes) {
  return {.rank = rank,
          .host = "node" + std::to_string(rank),
          .available_bytes = available_bytes,
          .arenas_bytes = 10 * kMiB,
          .kv_block_bytes = kMiB};
}

PoolRequest Request() { return {.max_num_seqs = 4, .max_model_len = 128, .block_tokens = 16}; }

TEST(CapacityTest, TheTightestRankSetsThePoolAndIsNamed) {
  const auto pool =
      SizeKvPool({Budget(0, 1000 * kMiB), Budget(1, 40 * kMiB), Budget(2, 50 * kMiB)}, Request());
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->num_blocks, 15);  // half of the 30 MiB that rank 1 has beside its arenas
  EXPECT_EQ(pool->binding_rank, 1);
  EXPECT_EQ(pool->full_sequences, 1);
}

TEST(CapacityTest, NoMoreThanMaxNumSeqsFullSequencesAreTaken) {
  const auto pool = SizeKvPool({Budget(0, 100000 * kMiB)}, Request());
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->num_blocks, 32);
  EXPECT_EQ(pool->full_sequences, 4);
}

TEST(CapacityTest, OneFullSequenceIsTakenEvenFromMoreThanHalf) {
  const auto pool = SizeKvPool({Budget(0, 18 * kMiB)}, Request());
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->num_blocks, 8);
}

TEST(CapacityTest, ARefusalNamesTheRankAndALengthThatFits) {
  const auto pool = SizeKvPool({Budget(0, 1000 * kMiB), Budget(1, 17 * kMiB)}, Request());
  ASSERT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ExitCodeOf(pool.status()), ExitCode::kDoesNotFit);
  EXPECT_NE(pool.status().message().find("rank 1 on node1"), std::string::npos) << pool.status();
  EXPECT_NE(pool.status().message().find("--max-model-len 112"), std::string::npos)
      << pool.status();
  // The remedy is true.
  PoolRequest shorter = Request();
  shorter.max_model_len = 112;
  EXPECT_TRUE(SizeKvPool({Budget(0, 1000 * kMiB), Budget(1, 17 * kMiB)}, shorter).ok());
}

TEST(CapacityTest, ArenasThatDoNotFitAreRefusedBeforeTheCache) {
  const auto pool = SizeKvPool({Budget(0, 9 * kMiB)}, Request());
  EXPECT_EQ(ExitCodeOf(pool.status()), ExitCode::kDoesNotFit);
}

TEST(CapacityTest, AskedForBytesAreTakenWholeOrRefused) {
  PoolRequest request = Request();
  request.kv_cache_bytes = 20 * kMiB + 5;
  const auto pool = SizeKvPool({Budget(0, 1000 * kMiB)}, request);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->num_blocks, 20);
  EXPECT_EQ(ExitCodeOf(SizeKvPool({Budget(0, 29 * kMiB)}, request).status()),
            ExitCode::kDoesNotFit);
  request.kv_cache_bytes = 7 * kMiB;
  EXPECT_EQ(ExitCodeOf(SizeKvPool({Budget(0, 1000 * kMiB)}, request).status()),
            ExitCode::kDoesNotFit);
}

TEST(CapacityTest, ARankWithoutHeadsSetsNoLimit) {
  RankBudget headless = Budget(1, 11 * kMiB);
  headless.kv_block_bytes = 0;
  const auto pool = SizeKvPool({Budget(0, 1000 * kMiB), headless}, Request());
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->num_blocks, 32);
  EXPECT_EQ(pool->binding_rank, 0);
}

TEST(CapacityTest, ABudgetSurvivesTheExchange) {
  RankBudget budget = Budget(3, 123456789);
  budget.host = "a host with spaces";
  const auto parsed = RankBudget::Parse(budget.Serialize());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->rank, 3);
  EXPECT_EQ(parsed->host, budget.host);
  EXPECT_EQ(parsed->available_bytes, budget.available_bytes);
  EXPECT_EQ(parsed->arenas_bytes, budget.arenas_bytes);
  EXPECT_EQ(parsed->kv_block_bytes, budget.kv_block_bytes);
  EXPECT_FALSE(RankBudget::Parse("1 2 x").ok());
}

}  // namespace
}  // namespace bulkhead
