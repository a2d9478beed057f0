#include "comm/control_bus.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/exit_code.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

std::string Message(int index) {
  const size_t lengths[] = {0, 1, 300, 32767, 32768, 32769, 65536, 100'000, size_t{1} << 20, 17};
  std::string message(lengths[index % 10], '\0');
  for (size_t i = 0; i < message.size(); ++i)
    message[i] = static_cast<char>(index + i * 7 + i / 251);
  return message;
}

TEST(ControlBus, EveryReaderGetsEveryMessageInOrder) {
  constexpr int kMessages = 200;
  for (const int size : {1, 2, 5}) {
    RunRanks(size, [&](Group& group) {
      const bool writer = group.exchange().topology().coordinator();
      std::string message;
      for (int i = 0; i < kMessages; ++i) {
        if (writer) {
          ASSERT_TRUE(group.bus().Publish(Message(i)).ok());
        } else {
          ASSERT_TRUE(group.bus().Receive(&message).ok());
          ASSERT_EQ(message, Message(i)) << "message " << i;
        }
      }
    });
  }
}

TEST(ControlBus, AWriterWaitsForASlowReaderAndLosesNothing) {
  constexpr int kMessages = 40;
  RunRanks(3, [&](Group& group) {
    const int rank = group.exchange().topology().rank;
    std::string message;
    for (int i = 0; i < kMessages; ++i) {
      if (rank == 0) {
        ASSERT_TRUE(group.bus().Publish(std::to_string(i)).ok());
        continue;
      }
      // Slow, while the writer never pauses: the other reader is far ahead of it.
      if (rank == 2) std::this_thread::sleep_for(std::chrono::microseconds(300));
      ASSERT_TRUE(group.bus().Receive(&message).ok());
      ASSERT_EQ(message, std::to_string(i));
    }
  });
}

TEST(ControlBus, AbortEndsASleepingReaderAndABlockedWriter) {
  const absl::Status why = WithExitCode(absl::AbortedError("enough"), ExitCode::kRankLost);
  RunRanks(3, [&](Group& group) {
    std::string message;
    absl::Status status;
    switch (group.exchange().topology().rank) {
      case 0:  // rank 2 never reads: the ring fills up
        while (status.ok()) status = group.bus().Publish("more");
        EXPECT_EQ(status, why);
        break;
      case 1:
        while (status.ok()) status = group.bus().Receive(&message);
        EXPECT_EQ(status, why);
        break;
      default:
        group.liveness().Abort(why);
    }
  });
}

}  // namespace
}  // namespace bulkhead
