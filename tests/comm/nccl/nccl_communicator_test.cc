#include "comm/nccl/nccl_communicator.h"

#include <memory>

#include "base/exit_code.h"
#include "base/lost_rank.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/nccl/nccl_library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "memory/bf16.h"
#include "tests/comm/nccl/nccl_rank_of_test.h"
#include "tests/comm/terms.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;

TEST_F(NcclCommunicatorTest, SumsWhatTheRanksPutIntoTheirTerms) {
  for (const int size : {2, 3, 4}) {
    RunRanks(size, [&](Group& group) {
      NcclRankOfTest rank(group, absl::Minutes(5));
      ASSERT_TRUE(rank.comm.ok()) << rank.comm.status();
      EXPECT_EQ(Controls().windows, size);
      for (const int64_t elements : {1, 300, 20000}) {
        std::vector<float> values(elements);
        for (int64_t i = 0; i < elements; ++i) {
          values[i] = static_cast<float>(i + (*rank.comm)->rank());
        }
        const MatrixView partial = (*rank.comm)->PartialSum(1, elements);
        rank.driver.CopyToDevice(values.data(), partial.data(), elements * 4);
        const auto sum = (*rank.comm)->AllReduceSum();
        ASSERT_TRUE(sum.ok()) << sum.status();
        rank.driver.CopyToHost(sum->data(), values.data(), elements * 4);
        ASSERT_TRUE(rank.driver.Synchronize().ok());
        for (int64_t i = 0; i < elements; ++i) {
          ASSERT_EQ(values[i], static_cast<float>(size * i + size * (size - 1) / 2));
        }
      }
    });
  }
}

// On the host, what a rank gets for its `partial`.
std::vector<float> SumOf(NcclRankOfTest& rank, std::vector<float> partial, bool in_f32) {
  const auto elements = static_cast<int64_t>(partial.size());
  rank.driver.CopyToDevice(partial.data(), (*rank.comm)->PartialSum(1, elements).data(),
                           elements * 4);
  const auto sum = in_f32 ? (*rank.comm)->AllReduceSumF32() : (*rank.comm)->AllReduceSum();
  EXPECT_TRUE(sum.ok()) << sum.status();
  rank.driver.CopyToHost(sum->data(), partial.data(), elements * 4);
  EXPECT_TRUE(rank.driver.Synchronize().ok());
  return partial;
}

TEST_F(NcclCommunicatorTest, InBf16EveryRankRoundsItsPartialSumBeforeNcclAddsThem) {
  for (const int size : {2, 3, 4}) {
    RunRanks(size, [&](Group& group) {
      NcclRankOfTest rank(group, absl::Minutes(5), int64_t{64} << 20, /*late=*/true,
                          kRoundedLimits);
      ASSERT_TRUE(rank.comm.ok()) << rank.comm.status();
      EXPECT_EQ(Controls().windows, size);
      for (const int64_t elements : {1, 300, 2049, 20000}) {
        std::vector<float> expected(elements);
        for (int r = size - 1; r >= 0; --r) {
          const std::vector<float> partial = MakePartialSum(elements, r, elements);
          for (int64_t i = 0; i < elements; ++i) {
            expected[i] = F32OfBf16(Bf16OfF32(expected[i] + F32OfBf16(Bf16OfF32(partial[i]))));
          }
        }
        const std::vector<float> mine = MakePartialSum(elements, (*rank.comm)->rank(), elements);
        EXPECT_EQ(SumOf(rank, mine, /*in_f32=*/false), expected) << elements;
      }
    });
  }
}

TEST_F(NcclCommunicatorTest, InBf16ThereAreSumsInF32Too) {
  constexpr int64_t kElements = 3000;
  RunRanks(2, [&](Group& group) {
    NcclRankOfTest rank(group, absl::Minutes(5), int64_t{64} << 20, /*late=*/false, kRoundedLimits);
    ASSERT_TRUE(rank.comm.ok()) << rank.comm.status();
    const std::vector<float> mine = MakePartialSum(1, (*rank.comm)->rank(), kElements);
    EXPECT_EQ(SumOf(rank, mine, /*in_f32=*/true), ExpectedSum(1, 2, kElements));
  });
}

TEST_F(NcclCommunicatorTest, InBf16HalfTheBytesAreSummed) {
  const auto bytes_of = [](const CommLimits& limits) {
    Controls().summed_bytes = 0;
    RunRanks(2, [&](Group& group) {
      NcclRankOfTest rank(group, absl::Minutes(5), int64_t{64} << 20, /*late=*/false, limits);
      ASSERT_TRUE(rank.comm.ok()) << rank.comm.status();
      SumOf(rank, std::vector<float>(20000), /*in_f32=*/false);
    });
    return Controls().summed_bytes.load();
  };
  const int64_t in_f32 = bytes_of(kLimits);
  EXPECT_GT(in_f32, 0);
  EXPECT_EQ(bytes_of(kRoundedLimits) * 2, in_f32);
}

TEST_F(NcclCommunicatorTest, GathersUnevenColumnsOnRankZero) {
  constexpr int64_t kRows = 5;
  const std::vector<int64_t> cols = {3, 0, 4};
  RunRanks(3, [&](Group& group) {
    NcclRankOfTest rank(group, absl::Minutes(5));
    ASSERT_TRUE(rank.comm.ok()) << rank.comm.status();
    const int r = (*rank.comm)->rank();
    const int64_t stride = cols[r] + 2;
    const Buffer buffer = *rank.device->Allocate(kRows * stride * 4);
    std::vector<float> part(kRows * stride);
    for (size_t i = 0; i < part.size(); ++i) part[i] = static_cast<float>(1000 * r + i);
    rank.driver.CopyToDevice(part.data(), buffer.data(), kRows * stride * 4);
    const ConstMatrixView view(buffer.data(), DType::kF32, kRows, cols[r], stride);
    const Buffer out_buffer = *rank.device->Allocate(kRows * 9 * 4);
    MatrixView out;
    if (r == 0) out = MatrixView(out_buffer.data(), DType::kF32, kRows, 7, 9);
    ASSERT_TRUE((*rank.comm)->GatherCols(view, cols, out).ok());
    if (r != 0) return;
    std::vector<float> whole(kRows * 9);
    rank.driver.CopyToHost(out_buffer.data(), whole.data(), kRows * 9 * 4);
    ASSERT_TRUE(rank.driver.Synchronize().ok());
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t c = 0; c < 9; ++c) {
        const float expected = static_cast<float>(c >= 7  ? 0
                                                  : c < 3 ? row * 5 + c
                                                          : 2000 + row * 6 + (c - 3));
        EXPECT_EQ(whole[row * 9 + c], expected) << row << " " << c;
      }
    }
  });
}

// What is sampled from comes so: no copy for each rank.
TEST_F(NcclCommunicatorTest, GathersRowsOfEqualWidthWithOneCopyEach) {
  constexpr int64_t kCols = 60;
  RunRanks(3, [&](Group& group) {
    NcclRankOfTest rank(group, absl::Minutes(5));
    ASSERT_TRUE(rank.comm.ok()) << rank.comm.status();
    const int r = (*rank.comm)->rank();
    const Buffer buffer = *rank.device->Allocate(4 * kCols * 4);
    const std::vector<float> mine = MakePartialSum(3, r, kCols);
    rank.driver.CopyToDevice(mine.data(), buffer.data(), kCols * 4);
    const ConstMatrixView part(buffer.data(), DType::kF32, 1, kCols);
    std::byte* const all = buffer.data() + kCols * 4;
    MatrixView out;
    if (r == 0) out = MatrixView(all, DType::kF32, 1, 3 * kCols);
    const int64_t before = rank.driver.copies_to_device();
    ASSERT_TRUE((*rank.comm)->GatherCols(part, {kCols, kCols, kCols}, out).ok());
    EXPECT_EQ(rank.driver.copies_to_device(), before + (r == 0 ? 2 : 1));
    if (r != 0) return;
    std::vector<float> whole(3 * kCols), expected;
    rank.driver.CopyToHost(all, whole.data(), 3 * kCols * 4);
    ASSERT_TRUE(rank.driver.Synchronize().ok());
    for (int i = 0; i < 3; ++i) {
      const std::vector<float> of_rank = MakePartialSum(3, i, kCols);
      expected.insert(expected.end(), of_rank.begin(), of_rank.end());
    }
    EXPECT_EQ(whole, expected);
  });
}

TEST_F(NcclCommunicatorTest, BroadcastsWhatRankZeroHas) {
  constexpr int kCount = 9;
  RunRanks(3, [&](Group& group) {
    NcclRankOfTest rank(group, absl::Minutes(5));
    ASSERT_TRUE(rank.comm.ok()) << rank.comm.status();
    const Buffer buffer = *rank.device->Allocate(kCount * 4);
    std::vector<int32_t> values(kCount);
    for (int i = 0; i < kCount; ++i) values[i] = 100000 * ((*rank.comm)->rank() + 1) + i;
    rank.driver.CopyToDevice(values.data(), buffer.data(), kCount * 4);
    auto* const on_device = reinterpret_cast<int32_t*>(buffer.data());
    ASSERT_TRUE((*rank.comm)->Broadcast(on_device, kCount).ok());
    ASSERT_TRUE((*rank.comm)->Broadcast(on_device, 0).ok());
    rank.driver.CopyToHost(buffer.data(), values.data(), kCount * 4);
    ASSERT_TRUE(rank.driver.Synchronize().ok());
    for (int i = 0; i < kCount; ++i) EXPECT_EQ(values[i], 100000 + i);
  });
}

TEST_F(NcclCommunicatorTest, TakesExactlyWhatThePlanSays) {
  CommLimits limits = kLimits;
  limits.max_sum_elements = 1 << 20;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    limits.sum_dtype = dtype;
    RunRanks(2, [&](Group& group) {
      const NcclRankOfTest rank(group, absl::Minutes(5), int64_t{64} << 20, /*late=*/false, limits);
      ASSERT_TRUE(rank.comm.ok()) << rank.comm.status();
      EXPECT_EQ(rank.ledger->taken(MemoryCategory::kCommunication),
                NcclWindow(limits, 2).total_bytes);
      rank.ledger->Seal();
    });
  }
  const int64_t in_bf16 = CommunicationBytes(limits, 2);
  limits.sum_dtype = DType::kF32;
  EXPECT_EQ(in_bf16, CommunicationBytes(limits, 2) + limits.max_sum_elements * 2);
}

TEST_F(NcclCommunicatorTest, RanksThatNeverConnectEndTheStartAtTheDeadline) {
  Controls().fault = FakeNcclFault::kNeverConnects;
  RunRanks(2, [&](Group& group) {
    const NcclRankOfTest rank(group, absl::Seconds(2));
    EXPECT_EQ(rank.comm.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(ExitCodeOf(rank.comm.status()), ExitCode::kGroupNotUp);
  });
}

TEST_F(NcclCommunicatorTest, ARankThatNcclRefusesEndsTheWaitsOfTheOthersWithItsWords) {
  Controls().fault = FakeNcclFault::kRefusesRank1;
  RunRanks(3, [&](Group& group) {
    const NcclRankOfTest rank(group, absl::Seconds(20));
    EXPECT_EQ(rank.comm.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ExitCodeOf(rank.comm.status()), ExitCode::kGroupNotUp);
    EXPECT_EQ(LostRankOf(rank.comm.status()).rank, 1);
    EXPECT_THAT(std::string(rank.comm.status().message()),
                HasSubstr("ncclCommInitRank: remote process exited"));
  });
}

TEST_F(NcclCommunicatorTest, ACommunicatorThatIsNeverSplitOffEndsTheStartAtTheDeadline) {
  Controls().fault = FakeNcclFault::kNeverSplits;
  RunRanks(2, [&](Group& group) {
    const NcclRankOfTest rank(group, absl::Seconds(30));
    EXPECT_EQ(rank.comm.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(rank.comm.status().message()), HasSubstr("ncclCommSplit"));
    EXPECT_EQ(ExitCodeOf(rank.comm.status()), ExitCode::kGroupNotUp);
  });
}

TEST_F(NcclCommunicatorTest, ASumThatARankNeverJoinsEndsTheStartAtTheDeadline) {
  Controls().fault = FakeNcclFault::kNeverSums;
  RunRanks(2, [&](Group& group) {
    const NcclRankOfTest rank(group, absl::Seconds(30));
    EXPECT_EQ(rank.comm.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(rank.comm.status().message()), HasSubstr("NCCL's first sum"));
    EXPECT_EQ(ExitCodeOf(rank.comm.status()), ExitCode::kGroupNotUp);
  });
}

TEST(KnownNumbersTest, AreAddedExactlyInAnyOrderUpToTheLargestGroup) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int size : {1, 2, 3, 7, 8, 11, 64, 182, 183, 200, 512, 513, 1023, 1024}) {
      const KnownNumbers known = KnownNumbersIn(dtype, size);
      for (const int64_t i : {0, 1, 126, 998, 999, 1000, 123999}) {
        float upwards = 0;
        float downwards = 0;
        for (int r = 0; r < size; ++r) {
          upwards += static_cast<float>(known.Value(i, r));
          downwards += static_cast<float>(known.Value(i, size - 1 - r));
        }
        EXPECT_EQ(upwards, static_cast<float>(known.Sum(i, size))) << size << " " << i;
        EXPECT_EQ(downwards, static_cast<float>(known.Sum(i, size))) << size << " " << i;
        EXPECT_LE(known.Sum(i, size), dtype == DType::kF32 ? (int64_t{1} << 24) - 1 : 256);
      }
    }
    // Those of one round of the check are no other's, and ranks have different ones.
    const KnownNumbers known = KnownNumbersIn(dtype, 8);
    for (int round = 1; round < 8; ++round) EXPECT_NE(known.Sum(round, 8), known.Sum(0, 8));
    EXPECT_NE(known.Value(0, 0), known.Value(0, 1));
  }
}

TEST(NcclWindowsTest, AreForVersionsWhoseSumsWaitForTheKernelBefore) {
  for (const int version : {21900, 22703, 22803, 22807, 22809, 22902, 22907, 23003, 23006}) {
    EXPECT_FALSE(WindowsWaitForStream(version)) << version;
  }
  for (const int version : {23007, 23100, 23203}) EXPECT_TRUE(WindowsWaitForStream(version));
}

// The sum of two ranks right after the kernel that writes the ranks' 1 and 2.
float SumBehindAKernel() {
  float sums[2] = {};
  RunRanks(2, [&](Group& group) {
    NcclRankOfTest rank(group, absl::Minutes(5), int64_t{64} << 20, /*late=*/true);
    ASSERT_TRUE(rank.comm.ok()) << rank.comm.status();
    const int r = (*rank.comm)->rank();
    constexpr int kThreads = 32;
    const MatrixView partial = (*rank.comm)->PartialSum(1, kThreads);
    rank.driver.Fill(partial.data(), std::byte{0}, kThreads * sizeof(float));
    EnqueueRamp(rank.driver, {reinterpret_cast<float*>(partial.data()), kThreads, 0, 1, 1 + r});
    const auto sum = (*rank.comm)->AllReduceSum();
    ASSERT_TRUE(sum.ok()) << sum.status();
    rank.driver.CopyToHost(sum->data(), &sums[r], sizeof(float));
    ASSERT_TRUE(rank.driver.Synchronize().ok());
  });
  return sums[0] == sums[1] ? sums[0] : -1;
}

TEST_F(NcclCommunicatorTest, ASumSeesWhatTheKernelBeforeItWrites) {
  EXPECT_EQ(SumBehindAKernel(), 3);
}

TEST_F(NcclCommunicatorTest, SumsThatStartEarlyOverWindowsGetNone) {
  Controls().fault = FakeNcclFault::kStartsEarly;
  for (const int version : {22803, 22809, 23003, 23006}) {
    Controls().version = version;
    EXPECT_EQ(SumBehindAKernel(), 3) << version;
  }
}

// These sums would be wrong over a window; a version that starts early is detected.
TEST_F(NcclCommunicatorTest, AWindowWhoseSumsStartEarlyIsFoundAtTheStart) {
  Controls().fault = FakeNcclFault::kStartsEarly;
  for (const CommLimits& limits : {kLimits, kRoundedLimits}) {
    RunRanks(2, [&](Group& group) {
      const NcclRankOfTest rank(group, absl::Minutes(5), int64_t{64} << 20, /*late=*/true, limits);
      EXPECT_EQ(rank.comm.status().code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(rank.comm.status().message()), HasSubstr("NCCL's sum is wrong"));
    });
  }
}

TEST_F(NcclCommunicatorTest, SumsThatStartEarlyWhereTheyAreLargeAreFoundAtTheStart) {
  Controls().fault = FakeNcclFault::kStartsLargeSumsEarly;
  CommLimits limits = kLimits;
  limits.max_sum_elements = 70000;
  RunRanks(2, [&](Group& group) {
    const NcclRankOfTest rank(group, absl::Minutes(5), int64_t{64} << 20, /*late=*/true, limits);
    EXPECT_EQ(rank.comm.status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(rank.comm.status().message()), HasSubstr("NCCL's sum is wrong"));
  });
}

TEST_F(NcclCommunicatorTest, ASumThatIsWrongIsFoundBeforeAnybodyReliesOnIt) {
  Controls().fault = FakeNcclFault::kSumsWrongly;
  for (const CommLimits& limits : {kLimits, kRoundedLimits}) {
    RunRanks(2, [&](Group& group) {
      const NcclRankOfTest rank(group, absl::Minutes(5), int64_t{64} << 20, /*late=*/false, limits);
      EXPECT_EQ(rank.comm.status().code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(rank.comm.status().message()), HasSubstr("element 1000 of 20000"));
    });
  }
}

TEST_F(NcclCommunicatorTest, AnErrorBehindOurBackNamesTheRankThatSawIt) {
  RunRanks(2, [&](Group& group) {
    NcclRankOfTest rank(group, absl::Minutes(5));
    ASSERT_TRUE(rank.comm.ok()) << rank.comm.status();
    ASSERT_TRUE(Agree(group.exchange(), "up", absl::OkStatus(), absl::Minutes(5)).ok());
    Controls().fail = true;
    (void)(*rank.comm)->PartialSum(1, 1);
    const absl::Status status = (*rank.comm)->AllReduceSum().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank " + std::to_string((*rank.comm)->rank()) + " (host "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("remote process exited"));
  });
}

TEST_F(NcclCommunicatorTest, ADeviceWithoutTheMemoryFailsAllRanksByItsName) {
  RunRanks(2, [&](Group& group) {
    const int64_t bytes = group.exchange().topology().rank == 1 ? 1 << 20 : 64 << 20;
    const NcclRankOfTest rank(group, absl::Minutes(5), bytes);
    EXPECT_EQ(rank.comm.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ExitCodeOf(rank.comm.status()), ExitCode::kDoesNotFit);
    EXPECT_THAT(std::string(rank.comm.status().message()), HasSubstr("rank 1 (host "));
  });
}

TEST_F(NcclCommunicatorTest, AWindowThatIsRefusedEndsTheStartWithNcclsWords) {
  Controls().fault = FakeNcclFault::kRefusesWindows;
  RunRanks(2, [&](Group& group) {
    const NcclRankOfTest rank(group, absl::Minutes(5));
    EXPECT_EQ(rank.comm.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(rank.comm.status().message()), HasSubstr("ncclCommWindowRegister"));
  });
}

}  // namespace
}  // namespace bulkhead
