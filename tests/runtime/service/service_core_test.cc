#include "runtime/service/service_core.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

TEST(ServiceCoreTest, AHostThatIsShortOfMemoryTakesNoCallsAndSaysWhenToComeBack) {
  HostQuotas quotas;
  quotas.total_bytes = 1000;
  std::atomic<int64_t> resident{5000};
  ServiceCore core(quotas, [&] { return resident.load(); });
  core.SetReady(ServingParts());
  EXPECT_TRUE(core.WhyRefused(10).ok());
  resident = 5900;
  core.pressure.Read();
  const absl::Status refused = core.WhyRefused(10);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "HOST_MEMORY");
  EXPECT_TRUE(RetryAfter(refused).has_value());
  resident = 5000;
  core.pressure.Read();
  EXPECT_TRUE(core.WhyRefused(10).ok());
}

TEST(ServiceCoreTest, AnIdTellsNothingOfAnother) {
  std::vector<std::set<char>> seen(16);
  for (int i = 0; i < 100; ++i) {
    const std::string id = ServiceCore::NewRequestId();
    ASSERT_EQ(id.size(), seen.size());
    for (size_t at = 0; at < id.size(); ++at) seen[at].insert(id[at]);
  }
  // By chance fewer than ten of 16 digits come in 100 draws once in 10^20 runs.
  for (const std::set<char>& digits : seen) EXPECT_GE(digits.size(), 10U);
}

TEST(ServiceCoreTest, AMessageHasItsLimit) {
  HostQuotas quotas;
  quotas.message_bytes = 100;
  ServiceCore core(quotas);
  EXPECT_TRUE(core.WhyRefused(100).ok());
  EXPECT_EQ(ReasonOf(core.WhyRefused(101)), "MESSAGE_TOO_LARGE");
  EXPECT_FALSE(RetryAfter(core.WhyRefused(101)).has_value());
}

}  // namespace
}  // namespace bulkhead
