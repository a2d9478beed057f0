#include "comm/clock_offsets.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);
constexpr int64_t kAheadNanos = 5'000'000'000;

void CheckOffsets(const std::vector<std::unique_ptr<Group>>& groups) {
  RunRanksOf(groups, [](Group& group) {
    const int rank = group.exchange().topology().rank;
    const auto offsets = MeasureClockOffsets(
        group.exchange(), kLong, [rank] { return RealtimeNanos() + rank * kAheadNanos; });
    ASSERT_TRUE(offsets.ok()) << offsets.status();
    ASSERT_EQ(static_cast<int>(offsets->size()), group.exchange().topology().size);
    EXPECT_EQ((*offsets)[0].offset_us, 0);
    EXPECT_EQ((*offsets)[0].error_us, 0);
    for (size_t other = 1; other < offsets->size(); ++other) {
      const ClockOffset& found = (*offsets)[other];
      const double truth_us = static_cast<double>(other) * kAheadNanos / 1e3;
      EXPECT_GT(found.error_us, 0);
      EXPECT_LE(std::abs(found.offset_us - truth_us), found.error_us) << "rank " << other;
      // Far smaller than the difference, even on a slow machine.
      EXPECT_LT(found.error_us, 1e6);
    }
  });
}

TEST(ClockOffsets, AClockThatIsAheadIsSaidToBeSoWithinTheErrorGiven) {
  CheckOffsets(NewLocalGroups(1));
  CheckOffsets(NewLocalGroups(3));
}

TEST(ClockOffsets, SoIsOneOfAnotherHost) { CheckOffsets(NewLocalNodes({0, 0, 1, 2})); }

TEST(ClockOffsets, AClockThatIsSetWhileItIsMeasuredIsKnownToBeUnknown) {
  RunRanks(2, [](Group& group) {
    const int rank = group.exchange().topology().rank;
    int reading = 0;
    const auto offsets = MeasureClockOffsets(group.exchange(), kLong, [&]() -> int64_t {
      return RealtimeNanos() + (rank == 1 && ++reading > 20 ? kAheadNanos : 0);
    });
    ASSERT_TRUE(offsets.ok()) << offsets.status();
    EXPECT_NEAR((*offsets)[1].offset_us, kAheadNanos / 2e3, 1e6);
    EXPECT_GT((*offsets)[1].error_us, 1e6);
  });
}

}  // namespace
}  // namespace bulkhead
