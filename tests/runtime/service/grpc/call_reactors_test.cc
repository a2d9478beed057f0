#include "runtime/service/grpc/call_reactors.h"

#include <gtest/gtest.h>

#include <chrono>

namespace bulkhead {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::system_clock;

const system_clock::time_point kBegun = system_clock::from_time_t(1'700'000'000);

bool IsDeadline(milliseconds timeout, milliseconds cancelled) {
  return IsPastDeadline(kBegun, kBegun + timeout, kBegun + cancelled);
}

TEST(CallReactorsTest, ACancellationAtTheClientsOwnDeadlineIsThatDeadline) {
  EXPECT_TRUE(IsDeadline(milliseconds(500), milliseconds(480)));
  EXPECT_TRUE(IsDeadline(seconds(120), milliseconds(119'300)));
  EXPECT_TRUE(IsDeadline(seconds(1010), milliseconds(1'000'500)));
  EXPECT_TRUE(IsDeadline(seconds(120), seconds(121)));
  EXPECT_TRUE(IsDeadline(seconds(-1), seconds(0))) << "it had passed before the call began";
}

TEST(CallReactorsTest, AnEarlierCancellationIsTheClients) {
  EXPECT_FALSE(IsDeadline(seconds(120), seconds(60)));
  EXPECT_FALSE(IsDeadline(seconds(120), milliseconds(118'700)));
  EXPECT_FALSE(IsDeadline(milliseconds(500), milliseconds(470)));
}

TEST(CallReactorsTest, WithoutADeadlineNoneHasPassed) {
  EXPECT_FALSE(IsPastDeadline(kBegun, system_clock::time_point::max(), kBegun + seconds(1)));
}

}  // namespace
}  // namespace bulkhead
