// One-shot sums between emulated devices, of ranks that are threads.
#include "comm/one_shot/one_shot_communicator.h"

#include <cmath>
#include <cstring>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/comm/one_shot/one_shot_rank.h"
#include "tests/comm/terms.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

using emulator::Schedule;

class OneShotSchedules : public testing::TestWithParam<Schedule> {};
INSTANTIATE_TEST_SUITE_P(All, OneShotSchedules, testing::ValuesIn(emulator::kAllSchedules));

// Each sum clears behind one of another length.
TEST_P(OneShotSchedules, SumsHaveTheBitsOfTheTree) {
  for (const bool late : {false, true}) {
    RunRanks(2, [&](Group& group) {
      RankOptions options;
      options.device.schedule = GetParam();
      options.device.late = late;
      OneShotRank rank(group, options);
      ASSERT_TRUE(rank.status().ok()) << rank.status();
      const int before = rank.sums();
      int round = 0;
      for (const int64_t elements : {7, 3000, 1, 2048, 2049, 1, 300, 3, 0}) {
        const std::vector<float> partial = MakePartialSum(++round, rank.comm().rank(), elements);
        EXPECT_TRUE(SameBits(rank.Sum(partial).data(), ExpectedSum(round, 2, elements)))
            << elements;
      }
      EXPECT_EQ(rank.sums() - before, round - 1);  // none was staged
    });
  }
}

TEST(OneShotCommunicatorTest, SumsOfEveryGroupHaveTheBitsOfTheTree) {
  for (const int size : {3, 4, 5, 6, 7, 8}) {
    RunRanks(size, [&](Group& group) {
      RankOptions options;
      options.limits.max_sum_elements = 100;
      OneShotRank rank(group, options);
      ASSERT_TRUE(rank.status().ok()) << rank.status();
      for (const int64_t elements : {100, 3, 77, 1, 100}) {
        const std::vector<float> partial = MakePartialSum(elements, rank.comm().rank(), elements);
        EXPECT_TRUE(SameBits(rank.Sum(partial).data(), ExpectedSum(elements, size, elements)))
            << size << " ranks, " << elements;
      }
    });
  }
}

TEST(OneShotCommunicatorTest, LargeSumsAreTheOthersAndChangeNothing) {
  constexpr int64_t kLarge = kMaxPeerSumElements + 1;
  RunRanks(2, [&](Group& group) {
    RankOptions options;
    options.limits.max_sum_elements = kLarge;
    OneShotRank rank(group, options);
    ASSERT_TRUE(rank.status().ok()) << rank.status();
    for (const int64_t elements : {kMaxPeerSumElements, kLarge, int64_t{5}, kLarge, int64_t{9}}) {
      const int before = rank.sums();
      const std::vector<float> partial = MakePartialSum(1, rank.comm().rank(), elements);
      EXPECT_TRUE(SameBits(rank.Sum(partial).data(), ExpectedSum(1, 2, elements))) << elements;
      EXPECT_EQ(rank.sums() - before, elements < kLarge ? 1 : 0);
    }
  });
}

// A word that stands for "nothing came" must not be waited for.
TEST(OneShotCommunicatorTest, ANanOfAnyBitsIsANumberLikeOthers) {
  RunRanks(2, [&](Group& group) {
    OneShotRank rank(group, {});
    ASSERT_TRUE(rank.status().ok()) << rank.status();
    std::vector<float> partial(5, 1.0F);
    std::memset(&partial[rank.comm().rank()], 0xFF, sizeof(float));
    const std::vector<float> sum = rank.Sum(partial);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(i < 2 ? std::isnan(sum[i]) : sum[i] == 2.0F) << i;
  });
}

// The count of sums is on the device: a graph of three, with others between its launches.
TEST(OneShotCommunicatorTest, GraphsMayHoldAnyNumberOfSums) {
  RunRanks(2, [&](Group& group) {
    OneShotRank rank(group, {});
    ASSERT_TRUE(rank.status().ok()) << rank.status();
    auto& driver = rank.driver();
    Communicator& comm = rank.comm();
    float* partial = nullptr;
    driver.BeginCapture();
    for (const int64_t count : {8, 500, 8}) {
      partial = comm.PartialSum(1, count).F32();
      EnqueueRamp(driver, {partial, count, 0, 1000, comm.rank()});
      ASSERT_TRUE(comm.AllReduceSum().ok());
    }
    const auto graph = driver.EndCapture();
    ASSERT_TRUE(graph.ok()) << graph.status();
    for (int round = 0; round < 5; ++round) {
      driver.LaunchGraph(*graph);
      float values[8] = {};
      driver.CopyToHost(reinterpret_cast<std::byte*>(partial), values, sizeof(values));
      ASSERT_TRUE(driver.Synchronize().ok()) << driver.Synchronize();
      for (int i = 0; i < 8; ++i) EXPECT_EQ(values[i], static_cast<float>(2 * i + 1));
      const std::vector<float> more = MakePartialSum(round, comm.rank(), 20 + round);
      EXPECT_TRUE(SameBits(rank.Sum(more).data(), ExpectedSum(round, 2, 20 + round)));
    }
    driver.FreeGraph(*graph);
  });
}

TEST(OneShotCommunicatorTest, TakesExactlyWhatThePlanSays) {
  EXPECT_EQ(OneShotLayout(kLimits, 1).total_bytes, 0);
  EXPECT_EQ(OneShotLayout(kLimits, 9).total_bytes, 0);
  EXPECT_EQ(OneShotLayout(kLimits, 2).total_bytes, 2 << 20);
  const CommLimits large{.max_sum_elements = 1 << 20, .transport = Transport::kNccl};
  EXPECT_EQ(OneShotLayout(large, 8).total_bytes, 6 << 20);  // 3 x 7 x 256 KiB, and counts
  EXPECT_EQ(CommunicationBytes(large, 8) - CommunicationBytes(large, 9), 6 << 20);
  RunRanks(2, [&](Group& group) {
    OneShotRank rank(group, {});
    ASSERT_TRUE(rank.status().ok()) << rank.status();
    EXPECT_EQ(rank.ledger().taken(MemoryCategory::kCommunication),
              CommunicationBytes(kLimits, 2) + rank.layout_bytes());
    rank.ledger().Seal();
  });
}

TEST(OneShotCommunicatorTest, ADeviceWithoutTheMemoryFailsAllRanksByItsName) {
  RunRanks(2, [&](Group& group) {
    RankOptions options;
    if (group.exchange().topology().rank == 1) options.device.total_bytes = 1 << 20;
    OneShotRank rank(group, options);
    EXPECT_EQ(rank.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(rank.status().message()), testing::HasSubstr("rank 1 (host "));
  });
}

// What all ranks then do: go without, and take the same memory.
void ExpectWithout(const std::vector<std::unique_ptr<Group>>& groups,
                   const std::function<RankOptions(int rank)>& options_of) {
  RunRanksOf(groups, [&](Group& group) {
    OneShotRank rank(group, options_of(group.exchange().topology().rank));
    ASSERT_TRUE(rank.status().ok()) << rank.status();
    const int before = rank.sums();
    const std::vector<float> partial = MakePartialSum(1, rank.comm().rank(), 50);
    EXPECT_TRUE(SameBits(rank.Sum(partial).data(), ExpectedSum(1, 2, 50)));
    EXPECT_EQ(rank.sums(), before);
    EXPECT_FALSE(rank.comm().NormsSum(1, 48));
    EXPECT_EQ(rank.ledger().taken(MemoryCategory::kCommunication),
              CommunicationBytes(kLimits, 2) + rank.layout_bytes());
  });
}

TEST(OneShotCommunicatorTest, AllRanksGoWithoutWhereOneCannot) {
  ExpectWithout(NewLocalGroups(2), [](int rank) { return RankOptions{.wanted = rank == 0}; });
  ExpectWithout(NewLocalGroups(2), [](int rank) {
    RankOptions options;
    options.device.peer_access = rank == 0;
    return options;
  });
  ExpectWithout(NewLocalGroups(2), [](int rank) {
    RankOptions options;
    if (rank == 1) options.device.num_sms = kPeerBlocks;
    return options;
  });
  ExpectWithout(NewLocalNodes({0, 1}), [](int) { return RankOptions(); });
}

TEST(OneShotCommunicatorTest, AllRanksGoWithoutWhereASumIsWrong) {
  ExpectWithout(NewLocalGroups(2), [](int) { return RankOptions{.sums_wrongly = true}; });
  ExpectWithout(NewLocalGroups(2), [](int) { return RankOptions{.norms_wrongly = true}; });
}

TEST(OneShotCommunicatorTest, AllRanksGoWithoutWhereASumNeverEnds) {
  ExpectWithout(NewLocalGroups(2), [](int) { return RankOptions{.misses_a_sum = true}; });
  ExpectWithout(NewLocalGroups(2), [](int) { return RankOptions{.misses_a_norm = true}; });
}

}  // namespace
}  // namespace bulkhead
