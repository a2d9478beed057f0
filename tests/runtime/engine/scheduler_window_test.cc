// KV groups with a window: what is held, reserved, given back and found again.
#include <algorithm>

#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

// A window of 9 takes 4 blocks of 4 tokens, and 4 more while a step of 16 runs.
SchedulerLimits WindowLimits() {
  SchedulerLimits limits = ToyLimits();
  limits.kv_groups = {{}, {.window = 9}};
  limits.prefix_caching = true;
  return limits;
}

TEST(SchedulerWindowTest, ASequenceHoldsWhatItsWindowShowsAndHasReservedIt) {
  const SchedulerLimits limits = WindowLimits();
  ToyLoop loop(limits);
  EXPECT_EQ(loop.scheduler().load().num_blocks_used, 0);  // none of those for steps
  ASSERT_TRUE(loop.Submit(ToyRequest(40, 24)).ok());
  loop.Step();
  EXPECT_EQ(loop.scheduler().load().num_blocks_used, 16 + 4);
  for (int i = 0; i < 12; ++i) {
    loop.Step();
    const int64_t held = loop.pool().num_blocks() - loop.pool().num_free();
    EXPECT_LE(held, 16 + 4 + limits.step_blocks());
    EXPECT_GT(held, 16);
  }
  EXPECT_EQ(loop.pool().num_blocks() - loop.pool().num_free(), 16 + 3);  // decoding
  loop.RunToEnd();
  EXPECT_EQ(loop.scheduler().load().num_blocks_used, 0);
}

TEST(SchedulerWindowTest, APrefixIsFoundWhereItsWindowIsStillCached) {
  const SchedulerLimits limits = WindowLimits();
  ToyLoop loop(limits);
  ASSERT_TRUE(loop.Submit(ToyRequest(40, 1)).ok());
  loop.RunToEnd();
  const auto hit_of = [&](int tokens) {
    const SequenceId id = *loop.Submit(ToyRequest(tokens, 1));
    loop.PlanAndRun();
    const int64_t hit = loop.scheduler().cached_prompt_tokens(id);
    loop.RunToEnd();
    return hit;
  };
  EXPECT_EQ(hit_of(41), 40);
  EXPECT_EQ(hit_of(21), 20);  // in the middle, whose blocks went back long ago
}

TEST(SchedulerWindowTest, UsedAndCachedBlocksAreNoMoreThanThereAre) {
  SchedulerLimits limits = WindowLimits();
  limits.num_kv_blocks = 3 * (16 + 4) + limits.step_blocks() + 2;
  EXPECT_EQ(limits.usable_blocks(), 62);
  ToyLoop loop(limits);
  int64_t most_used = 0;
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(loop.Submit(ToyRequest(40, 24, i % 4)).ok());
  while (!loop.scheduler().idle()) {
    loop.Step();
    const SchedulerLoad load = loop.scheduler().load();
    EXPECT_LE(load.num_blocks_used + load.num_blocks_cached, limits.usable_blocks());
    most_used = std::max(most_used, load.num_blocks_used);
  }
  EXPECT_GE(most_used, 60);
}

TEST(SchedulerWindowTest, ARequestNeedsTheBlocksOfStepsBesideItsOwn) {
  SchedulerLimits limits = WindowLimits();
  limits.num_kv_blocks = 16 + 4 + 4;
  ToyLoop fits(limits);
  EXPECT_TRUE(fits.Submit(ToyRequest(40, 24)).ok());
  fits.RunToEnd();
  limits.num_kv_blocks -= 1;
  ToyLoop lacks(limits);
  const absl::Status refused = lacks.Submit(ToyRequest(40, 24)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(refused.message().find("24 KV blocks"), std::string::npos) << refused;
}

}  // namespace
}  // namespace bulkhead
