#include "runtime/service/guard/host_pressure.h"

#include <gtest/gtest.h>

#include <atomic>

namespace bulkhead {
namespace {

TEST(HostPressureTest, SaysWhatPartOfTheBudgetIsTakenAndRefusesCalls) {
  HostCounters counters;
  std::atomic<int64_t> resident{500};
  HostPressure pressure(1000, &counters, [&] { return resident.load(); });
  resident = 1400;  // loading
  pressure.Read();
  EXPECT_EQ(pressure.percent(), 0);
  EXPECT_FALSE(counters.refuses_calls);
  pressure.SetReady();
  EXPECT_EQ(counters.resident_bytes_at_ready, 1400);
  struct {
    int64_t bytes;
    int percent;
    bool refuses;
  } const cases[] = {{1400, 0, false}, {1300, 0, false},  {2240, 84, false},
                     {2250, 85, true}, {3400, 200, true}, {1500, 10, false}};
  for (const auto& c : cases) {
    resident = c.bytes;
    pressure.Read();
    EXPECT_EQ(pressure.percent(), c.percent) << c.bytes;
    EXPECT_EQ(counters.refuses_calls, c.refuses) << c.bytes;
  }
  EXPECT_EQ(counters.resident_bytes.peak(), 3400);
}

TEST(HostPressureTest, WithoutABudgetItOnlyReads) {
  HostCounters counters;
  HostPressure pressure(0, &counters, [] { return int64_t{1} << 40; });
  pressure.SetReady();
  pressure.Read();
  EXPECT_EQ(pressure.percent(), 0);
  EXPECT_FALSE(counters.refuses_calls);
  EXPECT_EQ(counters.resident_bytes.now(), int64_t{1} << 40);
}

}  // namespace
}  // namespace bulkhead
