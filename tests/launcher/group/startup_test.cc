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

}  // namespace
}  // namespace bulkhead
