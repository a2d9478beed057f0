#include "launcher/bench/collectives.h"

#include <thread>
#include <vector>

#include "comm/shm/shared_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/bench/raw_shm_baseline.h"
#include "memory/device.h"
#include "memory/ledger.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

constexpr int64_t kElements = 30000;  // more than a small sum

TEST(CollectivesTest, EveryAnswerIsCheckedAndAnotherCallsAnswerIsWrong) {
  for (const int size : {2, 3}) {
    RunRanks(size, [&](Group& group) {
      const std::unique_ptr<Device> device = NewHostDevice(0);
      MemoryLedger ledger(*device);
      const CommLimits limits{kElements, kElements};
      ledger.Claim(MemoryCategory::kCommunication, CommunicationBytes(limits, size));
      const absl::StatusOr<std::unique_ptr<Communicator>> comm = group.Connect(limits, ledger);
      ASSERT_TRUE(comm.ok()) << comm.status();
      const int rank = (*comm)->rank();
      const MessagePattern pattern(rank, kElements);
      for (size_t i = 0; i < std::size(kCollectiveNames); ++i) {
        const auto collective = static_cast<Collective>(i);
        for (const int64_t count : {1, 1000, 10000}) {
          const int64_t bytes = count * UnitBytes(collective, size);
          const auto measured = MakeCollective(collective, bytes, {group, **comm, pattern});
          for (int64_t call = 1; call <= 3; ++call) {
            ASSERT_TRUE(measured->Call(call).ok());
            EXPECT_TRUE(measured->Check(call).ok()) << measured->Check(call);
          }
          const bool has_answer = collective == Collective::kGather      ? rank == 0
                                  : collective == Collective::kBroadcast ? rank != 0
                                                                         : true;
          EXPECT_EQ(measured->Check(4).ok(), !has_answer)
              << kCollectiveNames[static_cast<int>(collective)];
        }
      }
    });
  }
}

TEST(RawShmBaselineTest, BothWaysAddWhatBothBring) {
  constexpr int64_t kMaxBytes = 40000;
  constexpr int kRanks = 3;
  const auto memory = NewThreadSharedMemory(RawShmBaseline::Bytes(kRanks, kMaxBytes));
  ASSERT_TRUE(memory.ok());
  const auto run = [&](int rank, int peer) {
    RawShmBaseline loop(*memory, kRanks, kMaxBytes);
    const MessagePattern pattern(rank, kMaxBytes / 4);
    std::vector<float> whole(kMaxBytes / 4);
    for (int64_t call = 0; call < 100; ++call) {
      const auto split =
          call % 2 == 0 ? RawShmBaseline::Split::kWhole : RawShmBaseline::Split::kHalf;
      const int64_t count = call % 3 == 0 ? 1 : kMaxBytes / 4;
      const float* sum = loop.Sum(rank, peer, pattern.Part(call), count, split, whole.data());
      for (const int64_t i : {int64_t{0}, count / 2, count - 1}) {
        const int64_t at = MessagePattern::OffsetOf(call) + i;
        EXPECT_EQ(sum[i], MessagePattern::Value(rank, at) + MessagePattern::Value(peer, at));
      }
    }
  };
  // One after the other: pairs share the result.
  for (const auto& [first, second] : {std::pair{0, 1}, {0, 2}, {1, 2}}) {
    std::thread other(run, second, first);
    run(first, second);
    other.join();
  }
}

}  // namespace
}  // namespace bulkhead
