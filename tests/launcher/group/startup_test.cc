#include "launcher/group/startup.h"

#include <gtest/gtest.h>

namespace bulkhead {
namespace {

TEST(StartUpTest, CommunicatorsThatDoNotConnectSaySoBeforeTheStartIsOver) {
  const absl::Duration whole = absl::Seconds(600);
  for (const int passed_s : {0, 30, 300, 599}) {
    const absl::Duration passed = absl::Seconds(passed_s);
    const absl::Duration given = ConnectTimeout(whole, passed);
    EXPECT_GT(given, absl::ZeroDuration()) << passed;
    EXPECT_LE(given, 0.9 * (whole - passed)) << passed;
  }
  EXPECT_EQ(ConnectTimeout(whole, absl::Seconds(700)), absl::ZeroDuration());
}

TEST(StartUpTest, WithoutAQueueWhatStartsAtTheNextStepMayWait) {
  Limits limits;
  limits.max_num_seqs = 4;
  limits.max_model_len = 100;
  EXPECT_EQ(QueuedTokens(3, limits), 300);
  EXPECT_EQ(QueuedTokens(0, limits), 400);
}

}  // namespace
}  // namespace bulkhead
