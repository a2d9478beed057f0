// Queues of short and long prompts: a stream of long prompts must not delay short ones, and must
// finish.
#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

constexpr int kLongPrompt = 1500;

SchedulerLimits LaneLimits() {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 64;
  limits.max_model_len = 2048;
  limits.max_num_batched_tokens = 128;
  limits.block_tokens = 16;
  limits.num_kv_blocks = 64 * 128;
  return limits;
}

struct QueueRun {
  std::vector<int> short_steps;  // to the first token
  std::vector<int> long_steps;   // to the end
};

// Short prompts of 4 to 28 tokens arrive at `short_prompts_per_step`; at the same time
// `long_backlog` long ones are always queued or running.
QueueRun RunQueues(const SchedulerLimits& limits, double short_prompts_per_step, int long_backlog,
                   int steps) {
  ToyLoop loop(limits);
  std::mt19937 random(11);
  std::map<SequenceId, int> waiting_short_prompts;
  std::map<SequenceId, int> long_prompts;
  QueueRun run;
  double due = 0;
  for (int step = 0; step < steps || !waiting_short_prompts.empty() || !long_prompts.empty();
       ++step) {
    EXPECT_LT(step, 100 * steps) << "no end in sight";
    if (testing::Test::HasFailure()) break;
    if (step < steps) {
      due += short_prompts_per_step * 2 * static_cast<double>(random() % 1000) / 1000;
      for (; due >= 1; due -= 1) {
        const Request request = ToyRequest(4 + static_cast<int>(random() % 25), 8, step);
        waiting_short_prompts.emplace(*loop.scheduler().Submit(request), step);
      }
      while (static_cast<int>(long_prompts.size()) < long_backlog) {
        long_prompts.emplace(*loop.scheduler().Submit(ToyRequest(kLongPrompt, 8, step)), step);
      }
    }
    for (const Emission& emission : loop.Step()) {
      const auto found = waiting_short_prompts.find(emission.id);
      if (found != waiting_short_prompts.end()) {
        run.short_steps.push_back(step - found->second + 1);
        waiting_short_prompts.erase(found);
      }
      const auto ended = long_prompts.find(emission.id);
      if (ended != long_prompts.end() && emission.finish.has_value()) {
        run.long_steps.push_back(step - ended->second + 1);
        long_prompts.erase(ended);
      }
    }
  }
  return run;
}

int P99(std::vector<int> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() * 99 / 100];
}

class LanesTest : public testing::TestWithParam<std::tuple<double, Admission, int>> {};

TEST_P(LanesTest, LongPromptsAreHardlyFeltByShortOnesAndEnd) {
  const auto [short_prompts_per_step, admission, depth] = GetParam();
  SchedulerLimits limits = LaneLimits();
  limits.admission = admission;
  limits.depth = depth;
  const QueueRun without = RunQueues(limits, short_prompts_per_step, 0, 3000);
  const QueueRun with = RunQueues(limits, short_prompts_per_step, 3, 3000);
  ASSERT_GT(without.short_steps.size(), 1000);
  EXPECT_LE(P99(with.short_steps), 2 * P99(without.short_steps));
  ASSERT_GT(with.long_steps.size(), 20);
  // With the minimum share a prompt takes 8 * 1500 / 128 steps, and two others may be before it.
  EXPECT_LT(*std::max_element(with.long_steps.begin(), with.long_steps.end()), 500);
  std::printf("short prompts' p99: %d steps without long ones, %d with; long ones at most %d\n",
              P99(without.short_steps), P99(with.short_steps),
              *std::max_element(with.long_steps.begin(), with.long_steps.end()));
}

// A short one is 16 tokens of prompt and 7 of decode: 128 tokens per step are enough for 5.6 of
// them.
INSTANTIATE_TEST_SUITE_P(All, LanesTest,
                         testing::Combine(testing::Values(0.5, 2.0, 4.0, 4.5),
                                          testing::Values(Admission::kReserve,
                                                          Admission::kOptimistic),
                                          testing::Values(1, 2)));

TEST(LanesTest, ShortPromptPassesALongOneThatIsBeingPrefilled) {
  ToyLoop loop(LaneLimits());
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(kLongPrompt, 1, 1)).ok());
  loop.Step();
  EXPECT_EQ(loop.plan().num_tokens(0), 128);
  const SequenceId brief = *loop.scheduler().Submit(ToyRequest(20, 1, 2));
  loop.Step();
  EXPECT_NE(loop.EndOf(brief), nullptr);
  loop.RunToEnd();
}

TEST(LanesTest, LongPromptKeepsAnEighthOfEveryStep) {
  SchedulerLimits limits = LaneLimits();
  limits.max_num_seqs = 256;
  ToyLoop loop(limits);
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(kLongPrompt, 1, 1)).ok());
  loop.Step();
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(32, 1, i)).ok());
  loop.Step();
  int long_tokens = 0;
  for (int i = 0; i < loop.plan().slot_size(); ++i) {
    if (loop.plan().start_position(i) == 128) long_tokens = loop.plan().num_tokens(i);
  }
  EXPECT_EQ(long_tokens, 16);
  loop.RunToEnd();
}

TEST(LanesTest, ALongPromptKeepsNothingFromHigherPriorities) {
  SchedulerLimits limits = LaneLimits();
  limits.max_num_seqs = 256;
  limits.policy = SchedulingPolicy::kPriority;
  ToyLoop loop(limits);
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(kLongPrompt, 1, 1)).ok());
  loop.Step();
  for (int i = 0; i < 60; ++i) {
    Request request = ToyRequest(32, 1, i);
    request.priority = 1;
    ASSERT_TRUE(loop.scheduler().Submit(std::move(request)).ok());
  }
  loop.Step();
  EXPECT_EQ(loop.plan().slot_size(), 4);
  loop.RunToEnd();
}

TEST(LanesTest, LongPromptShortOfBlocksIsSavedFor) {
  SchedulerLimits limits = LaneLimits();
  // A long prompt needs 95, short ones take 2 each and never leave many free.
  limits.num_kv_blocks = 110;
  ToyLoop loop(limits);
  std::mt19937 random(3);
  int salt = 0;
  const auto feed = [&] {
    while (loop.scheduler().load().num_waiting < 8) {
      ASSERT_TRUE(
          loop.scheduler().Submit(ToyRequest(16, 8 + static_cast<int>(random() % 8), ++salt)).ok());
    }
  };
  for (int step = 0; step < 20; ++step) {
    feed();
    loop.Step();
  }
  const SequenceId id = *loop.scheduler().Submit(ToyRequest(kLongPrompt, 8, 0));
  for (int step = 0; loop.EndOf(id) == nullptr; ++step) {
    ASSERT_LT(step, 500) << "the long prompt starves";
    feed();
    loop.Step();
  }
  loop.RunToEnd();
}

TEST(LanesTest, ShortPromptsKeepAQuarterOfTheSlotsWhileTheyCome) {
  SchedulerLimits limits = LaneLimits();
  limits.max_num_seqs = 8;
  ToyLoop loop(limits);
  ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(4, 1, 1)).ok());
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(loop.scheduler().Submit(ToyRequest(40, 400, i)).ok());
  for (int step = 0; step < 60; ++step) loop.Step();
  EXPECT_EQ(loop.scheduler().load().num_running, 6);
  for (int step = 0; step < 250; ++step) loop.Step();
  EXPECT_EQ(loop.scheduler().load().num_running, 8);  // no short one has arrived for a long time
  loop.RunToEnd();
}

TEST(LanesTest, AStepAdmitsNoMoreTokensThanItMayLookUp) {
  constexpr int kPrompt = 1 << 15;
  constexpr int64_t kAtOnce = kTokensAdmittedPerStep / kPrompt;
  SchedulerLimits limits = ToyLimits();
  limits.prefix_caching = true;
  limits.max_model_len = kPrompt + 16;
  limits.max_num_seqs = 2 * kAtOnce + 1;
  limits.max_num_batched_tokens = kPrompt + 1;
  limits.num_kv_blocks = 20'000;
  ToyLoop loop(limits);
  const Request request = ToyRequest(kPrompt, 6);
  ASSERT_TRUE(loop.Submit(request).ok());
  loop.RunToEnd();
  for (int i = 0; i < limits.max_num_seqs; ++i) ASSERT_TRUE(loop.Submit(request).ok());
  loop.Step();
  EXPECT_EQ(loop.scheduler().load().num_running, kAtOnce);
  loop.Step();
  EXPECT_EQ(loop.scheduler().load().num_running, 2 * kAtOnce);
  loop.RunToEnd();
}

}  // namespace
}  // namespace bulkhead
