#include "runtime/service/service_core.h"

#include <gtest/gtest.h>

#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

TEST(ServiceCoreTest, AHostThatIsShortOfMemoryTakesNoCallsAndSaysWhenToComeBack) {
  ServiceCore core("epoch", HostQuotas());
  EXPECT_TRUE(core.WhyRefused(10).ok());
  core.host.refuses_calls = true;
  const absl::Status refused = core.WhyRefused(10);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "HOST_MEMORY");
  EXPECT_TRUE(RetryAfter(refused).has_value());
  core.host.refuses_calls = false;
  EXPECT_TRUE(core.WhyRefused(10).ok());
}

TEST(ServiceCoreTest, AMessageHasItsLimit) {
  HostQuotas quotas;
  quotas.message_bytes = 100;
  ServiceCore core("epoch", quotas);
  EXPECT_TRUE(core.WhyRefused(100).ok());
  EXPECT_EQ(ReasonOf(core.WhyRefused(101)), "MESSAGE_TOO_LARGE");
  EXPECT_FALSE(RetryAfter(core.WhyRefused(101)).has_value());
}

}  // namespace
}  // namespace bulkhead
