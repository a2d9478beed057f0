#include "runtime/engine/load_meter.h"

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

constexpr uint64_t kSecond = 1000000000;

TEST(LoadMeterTest, LineComesAfterAPeriodOfLoad) {
  LoadMeter meter(10 * kSecond, 200);
  SchedulerLoad load;
  meter.Busy(5 * kSecond, load);
  load.prompt_tokens_total = 1000;
  load.generation_tokens_total = 50;
  load.num_running = 3;
  load.num_waiting = 2;
  load.num_blocks_used = 50;
  EXPECT_FALSE(meter.Line(14 * kSecond, load).has_value());
  EXPECT_EQ(
      meter.Line(15 * kSecond, load),
      "prompt 100.0 tokens/s, generation 5.0 tokens/s, running 3, waiting 2, KV in use 25.0 %");
  EXPECT_FALSE(meter.Line(24 * kSecond, load).has_value());
  EXPECT_EQ(meter.Line(25 * kSecond, load),
            "prompt 0.0 tokens/s, generation 0.0 tokens/s, running 3, waiting 2, KV in use 25.0 %");
}

TEST(LoadMeterTest, HitRateIsShownWhereThereWereQueries) {
  LoadMeter meter(10 * kSecond, 200);
  SchedulerLoad load;
  load.prefix_queries_total = 1000;
  load.prefix_hits_total = 900;
  meter.Busy(0, load);
  load.prefix_queries_total += 400;
  load.prefix_hits_total += 150;
  load.num_blocks_cached = 50;  // idle
  EXPECT_EQ(meter.Line(10 * kSecond, load),
            "prompt 0.0 tokens/s, generation 0.0 tokens/s, running 0, waiting 0, KV in use 0.0 %, "
            "prefix cache hits 37.5 %");
  EXPECT_EQ(meter.Line(20 * kSecond, load),
            "prompt 0.0 tokens/s, generation 0.0 tokens/s, running 0, waiting 0, KV in use 0.0 %");
}

TEST(LoadMeterTest, IdleTimeCountsForNothing) {
  LoadMeter meter(10 * kSecond, 100);
  SchedulerLoad load;
  meter.Busy(0, load);
  meter.Idle();
  meter.Busy(100 * kSecond, load);
  EXPECT_FALSE(meter.Line(101 * kSecond, load).has_value());
  EXPECT_TRUE(meter.Line(110 * kSecond, load).has_value());
}

}  // namespace
}  // namespace bulkhead
