// One-shot sums between emulated devices, of ranks that are threads; what they are too large for is
// staged.
#include "comm/one_shot/one_shot_communicator.h"

#include <cmath>
#include <cstring>
#include <memory>

#include "comm/staged/staged_communicator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/peer_sum.h"
#include "memory/cuda_device.h"
#include "tests/comm/ramp.h"
#include "tests/comm/terms.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

using emulator::Schedule;

constexpr CommLimits kLimits{
    .max_sum_elements = 3000, .max_gather_elements = 64, .transport = Transport::kStaged};

struct RankOptions {
  CommLimits limits = kLimits;
  emulator::DeviceOptions device = {.total_bytes = int64_t{64} << 20};
  bool wanted = true;
  bool sums_wrongly = false;  // one of the sums at start
  bool misses_a_sum = false;
};

// A rank with an emulated device.
class OneShotRank {
 public:
  OneShotRank(Group& group, const RankOptions& options)
      : driver_(options.device), device_(*CudaDevice::New(driver_, 0)), ledger_(*device_) {
    const int size = group.exchange().topology().size;
    layout_bytes_ = OneShotLayout(options.limits, size).total_bytes;
    ledger_.Claim(MemoryCategory::kCommunication,
                  CommunicationBytes(options.limits, size) + layout_bytes_);
    OneShotOptions one_shot;
    one_shot.check_rounds = 6;
    one_shot.check_limit =
        options.misses_a_sum || options.sums_wrongly ? absl::Milliseconds(200) : absl::Minutes(5);
    if (!options.wanted) one_shot.wanted = absl::UnavailableError("not wanted");
    one_shot.sum = [this, options](const PeerSums& sums, float* x, int64_t count) {
      ++sums_;
      if (options.misses_a_sum && sums_ == 3 && sums.rank == 1) return;
      PeerSum(driver_, sums, x, count);
      if (options.sums_wrongly && sums_ == 4 && sums.rank == 1) {
        driver_.Fill(reinterpret_cast<std::byte*>(x), std::byte{1}, 4);
      }
    };
    one_shot.write_late = RampWriter(driver_);
    std::unique_ptr<Communicator> staged = *ConnectStaged(group, options.limits, *device_, ledger_);
    comm_ = ConnectOneShot(group, options.limits, driver_, driver_, ledger_, absl::Minutes(5),
                           std::move(one_shot), std::move(staged));
  }

  emulator::EmulatedCudaDriver& driver() { return driver_; }
  Communicator& comm() { return **comm_; }
  const absl::Status& status() const { return comm_.status(); }
  MemoryLedger& ledger() { return ledger_; }
  int sums() const { return sums_; }  // that were one-shot, or were to be
  int64_t layout_bytes() const { return layout_bytes_; }

  // Of partial sums that the host has.
  std::vector<float> Sum(const std::vector<float>& partial) {
    const auto bytes = static_cast<int64_t>(partial.size() * sizeof(float));
    const MatrixView view = comm().PartialSum(1, static_cast<int64_t>(partial.size()));
    driver_.CopyToDevice(partial.data(), view.data(), bytes);
    const auto sum = comm().AllReduceSum();
    std::vector<float> values(partial.size(), -1.0F);
    EXPECT_TRUE(sum.ok()) << sum.status();
    if (!sum.ok()) return values;
    driver_.CopyToHost(sum->data(), values.data(), bytes);
    EXPECT_TRUE(driver_.Synchronize().ok()) << driver_.Synchronize();
    return values;
  }

 private:
  emulator::EmulatedCudaDriver driver_;
  std::unique_ptr<CudaDevice> device_;
  MemoryLedger ledger_;
  int64_t layout_bytes_ = 0;
  int sums_ = 0;
  absl::StatusOr<std::unique_ptr<Communicator>> comm_;
};

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
  ExpectWithout(NewLocalNodes({0, 1}), [](int) { return RankOptions(); });
}

TEST(OneShotCommunicatorTest, AllRanksGoWithoutWhereASumIsWrong) {
  ExpectWithout(NewLocalGroups(2), [](int) { return RankOptions{.sums_wrongly = true}; });
}

TEST(OneShotCommunicatorTest, AllRanksGoWithoutWhereASumNeverEnds) {
  ExpectWithout(NewLocalGroups(2), [](int) { return RankOptions{.misses_a_sum = true}; });
}

}  // namespace
}  // namespace bulkhead
