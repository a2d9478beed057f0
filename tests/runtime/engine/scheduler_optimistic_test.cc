// Optimistic admission: growing on demand, and preemption by recomputation.
#include <vector>

#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

SchedulerLimits TightLimits() {
  SchedulerLimits limits = ToyLimits();
  limits.admission = Admission::kOptimistic;
  limits.num_kv_blocks = 10;
  return limits;
}

TEST(SchedulerOptimisticTest, AdmitsWhatReserveWouldNot) {
  ToyLoop loop(TightLimits());
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(4, 20, 1)).ok());
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(4, 20, 2)).ok());
  loop.Step();
  EXPECT_EQ(loop.scheduler().load().num_running, 2);
}

TEST(SchedulerOptimisticTest, YoungestIsPreemptedAndNoTokenIsDrawnTwice) {
  for (const int depth : {1, 2}) {
    SchedulerLimits limits = TightLimits();
    limits.depth = depth;
    ToyLoop loop(limits);
    const Request first = ToyRequest(4, 24, 1);
    const Request second = ToyRequest(4, 24, 2);
    const SequenceId old = *loop.scheduler().Submit(first);
    const SequenceId young = *loop.scheduler().Submit(second);
    while (loop.scheduler().load().preemptions_total == 0) loop.Step();
    EXPECT_EQ(loop.scheduler().preemptions(old), 0);
    EXPECT_EQ(loop.scheduler().preemptions(young), 1);
    loop.RunToEnd();
    EXPECT_EQ(loop.EndOf(young)->preemptions, 1);
    EXPECT_EQ(loop.TokensOf(old), ToyGenerate(first, {kToyEos}, 64).tokens);
    EXPECT_EQ(loop.TokensOf(young), ToyGenerate(second, {kToyEos}, 64).tokens);
  }
}

TEST(SchedulerOptimisticTest, LowestPriorityIsPreemptedFirst) {
  SchedulerLimits limits = TightLimits();
  limits.policy = SchedulingPolicy::kPriority;
  ToyLoop loop(limits);
  Request urgent = ToyRequest(4, 24, 2);
  urgent.priority = 1;
  const SequenceId old = *loop.scheduler().Submit(ToyRequest(4, 24, 1));
  loop.Step();
  const SequenceId young = *loop.scheduler().Submit(urgent);
  while (loop.scheduler().load().preemptions_total == 0) loop.Step();
  EXPECT_EQ(loop.scheduler().preemptions(old), 1);
  EXPECT_EQ(loop.scheduler().preemptions(young), 0);
  loop.RunToEnd();
}

TEST(SchedulerOptimisticTest, BlocksInFlightAreNotGivenAway) {
  SchedulerLimits limits = TightLimits();
  limits.depth = 2;
  ToyLoop loop(limits);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(3, 30, i)).ok());
  loop.RunToEnd();  // ToyRunner fails if a block is in two tables of a step
  EXPECT_GT(loop.scheduler().load().preemptions_total, 0);
  EXPECT_EQ(loop.pool().num_free(), 10);
}

TEST(SchedulerOptimisticTest, PoolOfOneSequenceServesManyInTurn) {
  SchedulerLimits limits = TightLimits();
  limits.num_kv_blocks = 8;
  ToyLoop loop(limits);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(*loop.scheduler().Submit(ToyRequest(5, 27, i)));
  loop.RunToEnd();
  for (const SequenceId id : ids) EXPECT_EQ(loop.TokensOf(id).size(), 27);
}

}  // namespace
}  // namespace bulkhead
