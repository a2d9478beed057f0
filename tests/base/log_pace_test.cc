#include "base/log_pace.h"

#include <gtest/gtest.h>

namespace bulkhead {
namespace {

TEST(LogPaceTest, ABurstAndThenOneLineAnIntervalAreLoggedAndTheOthersAreCounted) {
  absl::Time now = absl::UnixEpoch();
  LogPace pace(absl::Seconds(1), 2, [&] { return now; });
  int64_t unsaid = -1;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(pace.ShouldLog(&unsaid));
  EXPECT_EQ(unsaid, 0);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(pace.ShouldLog(&unsaid));
  now += absl::Seconds(1);
  EXPECT_TRUE(pace.ShouldLog(&unsaid));
  EXPECT_EQ(unsaid, 3);
  EXPECT_FALSE(pace.ShouldLog(&unsaid));
  now += absl::Minutes(1);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(pace.ShouldLog(&unsaid));
  EXPECT_FALSE(pace.ShouldLog(&unsaid));
}

}  // namespace
}  // namespace bulkhead
