#include "comm/staged/staged_communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/exit_code.h"
#include "memory/cuda_device.h"
#include "tests/comm/terms.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

// A rank with its own emulated device and a connected communicator.
class DeviceRank {
 public:
  DeviceRank(Group& group, const CommLimits& limits, bool late)
      : driver_({.late = late}), device_(*CudaDevice::New(driver_, 0)), ledger_(*device_) {
    ledger_.Claim(MemoryCategory::kCommunication,
                  CommunicationBytes(limits, group.exchange().topology().size));
    auto comm = ConnectStaged(group, limits, *device_, ledger_);
    EXPECT_TRUE(comm.ok()) << comm.status();
    if (comm.ok()) comm_ = *std::move(comm);
  }
  Communicator& comm() { return *comm_; }
  MemoryLedger& ledger() { return ledger_; }
  emulator::EmulatedCudaDriver& driver() { return driver_; }
  Device& device() { return *device_; }

  std::vector<float> Read(ConstMatrixView view) {
    std::vector<float> values(view.rows() * view.cols());
    for (int64_t row = 0; row < view.rows(); ++row) {
      device_->CopyToHost(view.RowBytes(row), values.data() + row * view.cols(),
                          view.cols() * static_cast<int64_t>(sizeof(float)));
    }
    EXPECT_TRUE(device_->Synchronize().ok());
    return values;
  }

 private:
  emulator::EmulatedCudaDriver driver_;
  std::unique_ptr<CudaDevice> device_;
  MemoryLedger ledger_;
  std::unique_ptr<Communicator> comm_;
};

constexpr CommLimits kLimits{
    .max_sum_elements = 20000, .max_gather_elements = 64, .transport = Transport::kStaged};

class StagedCommunicatorTest : public testing::TestWithParam<bool> {};

TEST_P(StagedCommunicatorTest, SumsHaveTheBitsOfTheHostsTree) {
  for (const int size : {2, 3, 4}) {
    RunRanks(size, [&](Group& group) {
      DeviceRank rank(group, kLimits, GetParam());
      int round = 0;
      for (const int64_t elements : {7, 20000, 1, 16384, 16385, 300}) {
        const std::vector<float> partial = MakePartialSum(++round, rank.comm().rank(), elements);
        const MatrixView view = rank.comm().PartialSum(1, elements);
        rank.device().CopyFromHost(partial.data(), view.data(), elements * sizeof(float));
        const auto sum = rank.comm().AllReduceSum();
        ASSERT_TRUE(sum.ok()) << sum.status();
        EXPECT_TRUE(SameBits(rank.Read(*sum).data(), ExpectedSum(round, size, elements)))
            << size << " ranks, " << elements;
      }
    });
  }
}

// No waits between operations except their own: enqueued work must not be overtaken.
TEST_P(StagedCommunicatorTest, OneOperationAfterTheOtherNeedsNoWaitBetweenThem) {
  constexpr int kRounds = 100;
  RunRanks(3, [&](Group& group) {
    DeviceRank rank(group, kLimits, GetParam());
    Device& device = rank.device();
    std::vector<std::vector<float>> sums(kRounds, std::vector<float>(1000));
    std::vector<std::vector<float>> partial_sums;
    for (int round = 0; round < kRounds; ++round) {
      partial_sums.push_back(MakePartialSum(round, rank.comm().rank(), 1000));
    }
    for (int round = 0; round < kRounds; ++round) {
      const MatrixView view = rank.comm().PartialSum(10, 100);
      device.CopyFromHost(partial_sums[round].data(), view.data(), 4000);
      const auto sum = rank.comm().AllReduceSum();
      ASSERT_TRUE(sum.ok()) << sum.status();
      device.CopyToHost(sum->data(), sums[round].data(), 4000);
    }
    ASSERT_TRUE(device.Synchronize().ok());
    for (int round = 0; round < kRounds; ++round) {
      EXPECT_TRUE(SameBits(sums[round].data(), ExpectedSum(round, 3, 1000))) << round;
    }
  });
}

TEST_P(StagedCommunicatorTest, GathersUnevenColumnsOnRankZero) {
  constexpr int64_t kRows = 5;
  const std::vector<int64_t> cols = {3, 0, 4};
  RunRanks(3, [&](Group& group) {
    DeviceRank rank(group, kLimits, GetParam());
    const int r = rank.comm().rank();
    const int64_t stride = cols[r] + 2;
    const Buffer buffer = *rank.device().Allocate(kRows * stride * 4);
    const Buffer out_buffer = *rank.device().Allocate(kRows * 9 * 4);
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<float> part(kRows * stride);
      for (size_t i = 0; i < part.size(); ++i) part[i] = static_cast<float>(1000 * r + i + repeat);
      rank.device().CopyFromHost(part.data(), buffer.data(), kRows * stride * 4);
      const ConstMatrixView view(buffer.data(), DType::kF32, kRows, cols[r], stride);
      MatrixView out;
      if (r == 0) out = MatrixView(out_buffer.data(), DType::kF32, kRows, 7, 9);
      ASSERT_TRUE(rank.comm().GatherCols(view, cols, out).ok());
      ASSERT_TRUE(rank.device().Synchronize().ok());
      if (r != 0) continue;
      const std::vector<float> whole = rank.Read(out);
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t c = 0; c < 7; ++c) {
          const float expected =
              static_cast<float>(c < 3 ? row * 5 + c + repeat : 2000 + row * 6 + (c - 3) + repeat);
          EXPECT_EQ(whole[row * 7 + c], expected) << row << " " << c;
        }
      }
    }
  });
}

TEST_P(StagedCommunicatorTest, BroadcastsReachEveryDeviceInTheOrderOfTheQueue) {
  constexpr int kRounds = 20;
  constexpr int kCount = 65;
  RunRanks(3, [&](Group& group) {
    DeviceRank rank(group, kLimits, GetParam());
    Device& device = rank.device();
    const Buffer buffer = *device.Allocate(kCount * 4);
    auto* const values = reinterpret_cast<int32_t*>(buffer.data());
    const auto value = [](int round, int i) { return (round << 20) - 7 * i; };
    std::vector<std::vector<int32_t>> sent(kRounds, std::vector<int32_t>(kCount)), got = sent;
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kCount; ++i) {
        sent[round][i] = rank.comm().rank() == 0 ? value(round, i) : -1;
      }
      device.CopyFromHost(sent[round].data(), buffer.data(), kCount * 4);
      ASSERT_TRUE(rank.comm().Broadcast(values, kCount).ok());
      device.CopyToHost(buffer.data(), got[round].data(), kCount * 4);
    }
    ASSERT_TRUE(device.Synchronize().ok());
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kCount; ++i) ASSERT_EQ(got[round][i], value(round, i)) << round;
    }
  });
}

TEST_P(StagedCommunicatorTest, EmptySumsAndGathersAreLegal) {
  RunRanks(2, [&](Group& group) {
    DeviceRank rank(group, kLimits, GetParam());
    (void)rank.comm().PartialSum(0, 4096);
    EXPECT_TRUE(rank.comm().AllReduceSum().ok());
    EXPECT_TRUE(rank.comm().GatherCols({}, {0, 0}, {}).ok());
  });
}

// A copy from or to pageable memory would block the stream.
TEST_P(StagedCommunicatorTest, EveryCopyGoesThroughPinnedMemory) {
  RunRanks(3, [&](Group& group) {
    DeviceRank rank(group, kLimits, GetParam());
    const int r = rank.comm().rank();
    const Buffer buffer = *rank.device().Allocate(4 * 64 * 3);
    const MatrixView part(buffer.data(), DType::kF32, 4, 5, 6);
    for (const int64_t elements : {1, 20000}) {
      (void)rank.comm().PartialSum(1, elements);
      EXPECT_TRUE(rank.comm().AllReduceSum().ok());
      const MatrixView out(buffer.data(), DType::kF32, 4, 15, 16);
      EXPECT_TRUE(rank.comm().GatherCols(part, {5, 5, 5}, r == 0 ? out : MatrixView()).ok());
      EXPECT_TRUE(rank.comm().Broadcast(reinterpret_cast<int32_t*>(buffer.data()), 10).ok());
    }
    EXPECT_TRUE(rank.device().Synchronize().ok());
    EXPECT_EQ(rank.driver().pageable_copies(), 0);
    (void)rank.Read(part);
    EXPECT_GT(rank.driver().pageable_copies(), 0);
  });
}

TEST_P(StagedCommunicatorTest, TakesOfTheDeviceExactlyWhatThePlanSays) {
  for (const int size : {2, 3}) {
    RunRanks(size, [&](Group& group) {
      DeviceRank rank(group, kLimits, GetParam());
      EXPECT_EQ(rank.ledger().taken(MemoryCategory::kCommunication),
                CommunicationBytes(kLimits, size));
      EXPECT_EQ(rank.device().allocated_bytes(), CommunicationBytes(kLimits, size));
      rank.ledger().Seal();
    });
  }
}

TEST_P(StagedCommunicatorTest, ADeviceWithoutTheMemoryFailsAllRanksByItsName) {
  RunRanks(3, [&](Group& group) {
    const int r = group.exchange().topology().rank;
    emulator::EmulatedCudaDriver driver({.late = GetParam()});
    const auto device = *CudaDevice::New(driver, r == 1 ? 1000 : 0);
    MemoryLedger ledger(*device);
    ledger.Claim(MemoryCategory::kCommunication, CommunicationBytes(kLimits, 3));
    const auto comm = ConnectStaged(group, kLimits, *device, ledger);
    EXPECT_EQ(comm.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ExitCodeOf(comm.status()), ExitCode::kDoesNotFit);
    EXPECT_NE(comm.status().message().find("rank 1 (host "), std::string::npos) << comm.status();
  });
}

TEST_P(StagedCommunicatorTest, AFaultOnTheDeviceEndsTheSumThere) {
  RunRanks(2, [&](Group& group) {
    DeviceRank rank(group, kLimits, GetParam());
    if (rank.comm().rank() == 1) {
      // An address outside of what is mapped.
      rank.driver().Fill(rank.comm().PartialSum(1, 1).data() + (int64_t{1} << 29), std::byte{0}, 4);
      const auto sum = rank.comm().AllReduceSum();
      EXPECT_EQ(sum.status().code(), absl::StatusCode::kInternal);
      group.liveness().Abort(sum.status());
    } else {
      (void)rank.comm().PartialSum(1, 1);
      EXPECT_EQ(rank.comm().AllReduceSum().status().code(), absl::StatusCode::kInternal);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Queue, StagedCommunicatorTest, testing::Bool(),
                         [](const auto& late) { return late.param ? "Late" : "Early"; });

}  // namespace
}  // namespace bulkhead
