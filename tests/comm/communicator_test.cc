#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "base/exit_code.h"
#include "comm/shm/shm_communicator.h"
#include "tests/comm/terms.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

// A rank with its own memory and a connected communicator.
class ConnectedRank {
 public:
  ConnectedRank(Group& group, const CommLimits& limits) : ledger_(*device_) {
    ledger_.Claim(MemoryCategory::kCommunication,
                  CommunicationBytes(limits, group.exchange().topology().size));
    auto comm = group.Connect(limits, ledger_);
    EXPECT_TRUE(comm.ok()) << comm.status();
    if (comm.ok()) comm_ = *std::move(comm);
  }
  Communicator& comm() { return *comm_; }
  MemoryLedger& ledger() { return ledger_; }

 private:
  std::unique_ptr<Device> device_ = NewHostDevice(0);
  MemoryLedger ledger_;
  std::unique_ptr<Communicator> comm_;
};

absl::StatusOr<ConstMatrixView> SumTerms(Communicator& comm, uint64_t seed, int64_t elements) {
  const std::vector<float> partial = MakePartialSum(seed, comm.rank(), elements);
  std::copy(partial.begin(), partial.end(), comm.PartialSum(1, elements).F32());
  return comm.AllReduceSum();
}

// The ranks' parts [rows, r + 2] of a gather; every value encodes its origin.
float PartValue(int round, int rank, int64_t row, int64_t col) {
  return static_cast<float>(round * 1000 + rank * 100 + row * 10 + col);
}

void GatherAndCheck(Communicator& comm, int round, int64_t rows) {
  std::vector<int64_t> cols;
  int64_t width = 0;
  for (int rank = 0; rank < comm.size(); ++rank) {
    cols.push_back((rank + round) % 3);
    width += cols.back();
  }
  const int64_t own = cols[comm.rank()];
  const int64_t stride = own + 3;
  std::vector<float> part(rows * stride, -1.0F);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < own; ++col) {
      part[row * stride + col] = PartValue(round, comm.rank(), row, col);
    }
  }
  const ConstMatrixView view(reinterpret_cast<const std::byte*>(part.data()), DType::kF32, rows,
                             own, stride);
  std::vector<float> out(rows * (width + 1), -2.0F);
  MatrixView out_view;
  if (comm.rank() == 0) {
    out_view =
        MatrixView(reinterpret_cast<std::byte*>(out.data()), DType::kF32, rows, width, width + 1);
  }
  ASSERT_TRUE(comm.GatherCols(view, cols, out_view).ok());
  if (comm.rank() != 0) return;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t at = row * (width + 1);
    for (int rank = 0; rank < comm.size(); ++rank) {
      for (int64_t col = 0; col < cols[rank]; ++col, ++at) {
        ASSERT_EQ(out[at], PartValue(round, rank, row, col)) << row << " " << rank << " " << col;
      }
    }
    ASSERT_EQ(out[at], -2.0F);  // the stride's gap is untouched
  }
}

TEST(Communicator, SumsEqualTheTreeBitForBitOnEveryRank) {
  constexpr uint64_t kSeed = 20;
  for (int size = 1; size <= 9; ++size) {
    for (const int64_t elements : {1, 7, 256, 257, 1000, 16385, 262144}) {
      const std::vector<float> expected = ExpectedSum(kSeed, size, elements);
      RunRanks(size, [&](Group& group) {
        ConnectedRank rank(group, {.max_sum_elements = elements});
        const auto sum = SumTerms(rank.comm(), kSeed, elements);
        ASSERT_TRUE(sum.ok()) << sum.status();
        ASSERT_EQ(sum->rows(), 1);
        ASSERT_EQ(sum->cols(), elements);
        EXPECT_TRUE(SameBits(sum->F32(), expected)) << size << " ranks, " << elements;
      });
    }
  }
}

TEST(Communicator, SmallAndLargeSumsAndGathersAlternateWithoutOverwritingEachOther) {
  constexpr int kRounds = 1500;
  const int64_t sizes[] = {5, 17000, 256, 300, 16400, 1, 257};
  std::vector<std::vector<std::vector<float>>> expected(4);  // by size of the group, then by kind
  for (const int size : {2, 3}) {
    for (int kind = 0; kind < 7; ++kind) {
      expected[size].push_back(ExpectedSum(kind, size, sizes[kind]));
    }
    RunRanks(size, [&](Group& group) {
      ConnectedRank rank(group, {.max_sum_elements = 20000, .max_gather_elements = 200});
      std::vector<std::vector<float>> partial_sums;
      for (int kind = 0; kind < 7; ++kind) {
        partial_sums.push_back(MakePartialSum(kind, rank.comm().rank(), sizes[kind]));
      }
      for (int round = 0; round < kRounds; ++round) {
        const int kind = (round * 3 + round / 7) % 7;
        const MatrixView partial = rank.comm().PartialSum(1, sizes[kind]);
        std::copy(partial_sums[kind].begin(), partial_sums[kind].end(), partial.F32());
        const auto sum = rank.comm().AllReduceSum();
        ASSERT_TRUE(sum.ok()) << sum.status();
        if (round % 3 == 0) GatherAndCheck(rank.comm(), round, 1 + round % 5);
        if (round % 5 == 0) {
          ASSERT_EQ(GatherRowsOnce(rank.comm(), round), "");
        }
        // After the gather: a sum stays valid until the next PartialSum.
        ASSERT_TRUE(SameBits(sum->F32(), expected[size][kind])) << "round " << round;
        // One rank is late, in turn.
        if (round % 50 == rank.comm().rank()) std::this_thread::yield();
      }
    });
  }
}

TEST(Communicator, RowsGoToTheRanksThatAreNamed) {
  for (int size = 2; size <= 8; ++size) {
    RunRanks(size, [&](Group& group) {
      ConnectedRank rank(group, {.max_sum_elements = 600, .max_gather_elements = 200});
      for (int round = 0; round < 300; ++round) {
        ASSERT_EQ(GatherRowsOnce(rank.comm(), round), "") << size << " ranks, round " << round;
        if (round % 7 == 0) GatherAndCheck(rank.comm(), round, 3);
      }
    });
  }
}

TEST(Communicator, RanksThatDivideRowsDifferentlyAreABugAndNotANumber) {
  RunRanks(2, [&](Group& group) {
    ConnectedRank rank(group, {.max_gather_elements = 8});
    const std::vector<int> rank_of_row = {rank.comm().rank(), 0};
    std::vector<float> rows(4);
    const bool first = rank.comm().rank() == 0;
    const MatrixView out(reinterpret_cast<std::byte*>(rows.data()), DType::kF32, first ? 2 : 1, 2);
    const MatrixView part(reinterpret_cast<std::byte*>(rows.data()), DType::kF32, 2, 1);
    const absl::Status status = rank.comm().GatherRows(part, {1, 1}, rank_of_row, out);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kBug);
  });
}

TEST(Communicator, BroadcastsGiveEveryRankTheBitsOfRankZero) {
  for (int size = 1; size <= 5; ++size) {
    RunRanks(size, [&](Group& group) {
      ConnectedRank rank(group, {.max_sum_elements = 600, .max_gather_elements = 64});
      for (const int count : {0, 1, 3, 300}) {
        std::vector<int32_t> values(count), want(count);
        for (int i = 0; i < count; ++i) {
          want[i] = static_cast<int32_t>(2654435761U * static_cast<uint32_t>(i + 1));
          values[i] = rank.comm().rank() == 0 ? want[i] : -i;
        }
        ASSERT_TRUE(rank.comm().Broadcast(values.data(), count).ok());
        EXPECT_EQ(values, want) << size << " ranks";
        GatherAndCheck(rank.comm(), count, 2);
      }
    });
  }
}

TEST(Communicator, RanksWithoutAShareSendNegativeZerosAndChangeNoBit) {
  const std::vector<float> values = {1.5F, -0.0F, 0.0F, -7.25F};
  RunRanks(5, [&](Group& group) {
    ConnectedRank rank(group, {.max_sum_elements = 4});
    const MatrixView partial = rank.comm().PartialSum(2, 2);
    for (int i = 0; i < 4; ++i) partial.F32()[i] = rank.comm().rank() == 3 ? values[i] : -0.0F;
    const auto sum = rank.comm().AllReduceSum();
    ASSERT_TRUE(sum.ok());
    EXPECT_TRUE(SameBits(sum->F32(), values));
  });
}

TEST(Communicator, AnEmptySumAndAnEmptyGatherAreLegal) {
  RunRanks(3, [&](Group& group) {
    ConnectedRank rank(group, {});
    (void)rank.comm().PartialSum(0, 4096);
    EXPECT_TRUE(rank.comm().AllReduceSum().ok());
    EXPECT_TRUE(rank.comm().GatherCols({}, {0, 0, 0}, {}).ok());
  });
}

TEST(Communicator, TakesExactlyWhatThePlanSays) {
  const CommLimits limits{.max_sum_elements = 300'000, .max_gather_elements = 1000};
  for (const int size : {1, 2, 3, 8}) {
    RunRanks(size, [&](Group& group) {
      ConnectedRank rank(group, limits);
      EXPECT_EQ(rank.ledger().taken(MemoryCategory::kCommunication),
                CommunicationBytes(limits, size));
      rank.ledger().Seal();
    });
  }
}

TEST(Communicator, TheFormulaIsTwoSlotsAPrivateResultAndAShareOfTheSharedOne) {
  // 40,000 floats: slots of 160,000 bytes in whole pages; a share of 80,000 bytes in whole pages.
  EXPECT_EQ(CommunicationBytes({.max_sum_elements = 40'000}, 2), 2 * 163'840 + 81'920 + 1024);
  // Small sums need no shared result.
  EXPECT_EQ(CommunicationBytes({.max_sum_elements = 250}, 4), 2 * 4096 + 1024);
  EXPECT_EQ(CommunicationBytes({.max_gather_elements = 1025}, 4), 2 * 8192);
  EXPECT_EQ(CommunicationBytes({.max_sum_elements = 100, .max_gather_elements = 9999}, 1), 448);
}

TEST(Communicator, ARankWithoutTheMemoryFailsAllRanksByItsName) {
  const CommLimits limits{.max_sum_elements = 100'000};
  RunRanks(3, [&](Group& group) {
    const int rank = group.exchange().topology().rank;
    const std::unique_ptr<Device> device = NewHostDevice(rank == 1 ? 500'000 : 0);
    MemoryLedger ledger(*device);
    ledger.Claim(MemoryCategory::kCommunication,
                 CommunicationBytes(limits, group.exchange().topology().size));
    const auto comm = group.Connect(limits, ledger);
    EXPECT_EQ(comm.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ExitCodeOf(comm.status()), ExitCode::kDoesNotFit);
    EXPECT_TRUE(IsAgreed(comm.status()));
    EXPECT_NE(comm.status().message().find("rank 1 (host "), std::string::npos) << comm.status();
  });
}

TEST(Communicator, RanksThatSumDifferentShapesAreABugAndNotANumber) {
  RunRanks(2, [&](Group& group) {
    ConnectedRank rank(group, {.max_sum_elements = 8});
    (void)rank.comm().PartialSum(1, rank.comm().rank() == 0 ? 4 : 8);
    const auto sum = rank.comm().AllReduceSum();
    EXPECT_EQ(sum.status().code(), absl::StatusCode::kInternal);
    EXPECT_EQ(ExitCodeOf(sum.status()), ExitCode::kBug);
  });
}

TEST(Communicator, AbortEndsSumsAndGathersWithItsWords) {
  RunRanks(4, [&](Group& group) {
    ConnectedRank rank(group, {.max_sum_elements = 8, .max_gather_elements = 8});
    if (rank.comm().rank() == 3) {
      group.liveness().Abort(
          WithExitCode(absl::UnavailableError("rank 9 ended"), ExitCode::kRankLost));
      group.liveness().Abort(absl::InternalError("too late"));
      return;
    }
    (void)rank.comm().PartialSum(1, 8);
    const absl::Status status = rank.comm().AllReduceSum().status();
    EXPECT_EQ(status, WithExitCode(absl::UnavailableError("rank 9 ended"), ExitCode::kRankLost));
    const std::vector<int64_t> cols(4, 0);
    EXPECT_EQ(rank.comm().GatherCols({}, cols, {}), status);
  });
}

}  // namespace
}  // namespace bulkhead
