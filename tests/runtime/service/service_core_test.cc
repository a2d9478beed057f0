#include "runtime/service/service_core.h"

#include <gtest/gtest.h>

#include <atomic>

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
