#include "runtime/engine/rank_loop.h"

#include <algorithm>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "base/exit_code.h"
#include "gtest/gtest.h"
#include "tests/runtime/engine/recording_sink.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

// One reader's end of a bus: published messages can be received, in order.
class QueueBus final : public ControlBus {
 public:
  absl::Status Publish(absl::string_view message) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!broken_.ok()) return broken_;
    messages_.emplace_back(message);
    changed_.notify_all();
    return absl::OkStatus();
  }
  absl::Status Receive(std::string* message) override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !messages_.empty() || !broken_.ok(); });
    if (messages_.empty()) return broken_;
    *message = std::move(messages_.front());
    messages_.pop_front();
    return absl::OkStatus();
  }
  void Break(absl::Status why) {
    std::lock_guard<std::mutex> lock(mutex_);
    broken_ = std::move(why);
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> messages_;
  absl::Status broken_;
};

std::string Plan(uint64_t seq, bool stop) {
  internal::StepPlan plan;
  plan.set_seq(seq);
  plan.set_stop(stop);
  return plan.SerializeAsString();
}

Coordinator::Options ToyOptions() {
  Coordinator::Options options;
  options.limits = ToyLimits();
  options.eos_ids = {kToyEos};
  return options;
}

TEST(RankLoopTest, EveryRankRunsThePlansOfRankZero) {
  QueueBus bus;
  ToyRunner first(ToyLimits());
  ToyRunner second(ToyLimits());
  Coordinator coordinator(ToyOptions());
  coordinator.SetServing();
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(coordinator.Submit(ToyRequest(20, 7), sink).ok());
  coordinator.BeginDrain(absl::InfiniteDuration());
  absl::Status other;
  // A rank without sample rows samples nothing, so its cache depends on the plans' ids only.
  std::thread thread([&] { other = RunRank(second, &bus, nullptr, nullptr); });
  EXPECT_TRUE(RunRank(first, &bus, &coordinator, nullptr).ok());
  thread.join();
  EXPECT_TRUE(other.ok());
  EXPECT_EQ(first.steps(), 8);
  EXPECT_EQ(second.steps(), 8);
  EXPECT_EQ(sink->tokens().size(), 7);
}

TEST(RankLoopTest, GapInTheNumbersIsABug) {
  QueueBus bus;
  ASSERT_TRUE(bus.Publish(Plan(2, false)).ok());
  ToyRunner runner(ToyLimits());
  const absl::Status status = RunRank(runner, &bus, nullptr, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kBug);
}

TEST(RankLoopTest, PlanThatDoesNotParseIsABug) {
  QueueBus bus;
  ASSERT_TRUE(bus.Publish("\xff\xff").ok());
  ToyRunner runner(ToyLimits());
  EXPECT_EQ(ExitCodeOf(RunRank(runner, &bus, nullptr, nullptr)), ExitCode::kBug);
}

TEST(RankLoopTest, LostBusEndsEveryRequest) {
  QueueBus bus;
  bus.Break(absl::UnavailableError("rank 1 ended"));
  Coordinator coordinator(ToyOptions());
  coordinator.SetServing();
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(coordinator.Submit(ToyRequest(20, 7), sink).ok());
  ToyRunner runner(ToyLimits());
  EXPECT_EQ(RunRank(runner, &bus, &coordinator, nullptr).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(sink->WaitForEnd().status.message(), "rank 1 ended");
}

class CountingWatch final : public StepWatch {
 public:
  void StepBegins(const internal::StepPlan& plan) override {
    EXPECT_EQ(plan.seq(), ++begun);
    most_in_flight = std::max(most_in_flight, begun - ended);
  }
  void StepEnds() override { ++ended; }
  uint64_t begun = 0;
  uint64_t ended = 0;
  uint64_t most_in_flight = 0;
};

TEST(RankLoopTest, WatchSeesEveryStepBeginAndEnd) {
  Coordinator coordinator(ToyOptions());
  coordinator.SetServing();
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(coordinator.Submit(ToyRequest(3, 4), sink).ok());
  coordinator.BeginDrain(absl::InfiniteDuration());
  ToyRunner runner(ToyLimits());
  CountingWatch watch;
  EXPECT_TRUE(RunRank(runner, nullptr, &coordinator, &watch).ok());
  EXPECT_EQ(watch.begun, 4);
  EXPECT_EQ(watch.ended, 4);
  EXPECT_EQ(watch.most_in_flight, 1);
}

TEST(RankLoopTest, WithDepthTwoEveryRankCollectsInTheOrderOfRankZero) {
  SchedulerLimits limits = ToyLimits();
  limits.depth = 2;
  QueueBus bus;
  ToyRunner first(limits);
  ToyRunner second(limits);
  Coordinator::Options options = ToyOptions();
  options.limits = limits;
  Coordinator coordinator(std::move(options));
  coordinator.SetServing();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 12; ++i) {
    Request request = ToyRequest(3 + i, 2 + i, i);
    if (i % 4 == 0) request.num_logprobs = 1;  // ends overlapping for a while
    sinks.push_back(std::make_shared<RecordingSink>());
    ASSERT_TRUE(coordinator.Submit(request, sinks.back()).ok());
  }
  coordinator.BeginDrain(absl::InfiniteDuration());
  CountingWatch watches[2];
  absl::Status other;
  std::thread thread([&] { other = RunRank(second, &bus, nullptr, &watches[1]); });
  EXPECT_TRUE(RunRank(first, &bus, &coordinator, &watches[0]).ok());
  thread.join();
  EXPECT_TRUE(other.ok()) << other;
  for (int i = 0; i < 12; ++i) EXPECT_EQ(sinks[i]->tokens().size(), size_t(2 + i));
  for (const CountingWatch& watch : watches) {
    EXPECT_EQ(watch.most_in_flight, 2);
    EXPECT_EQ(watch.begun, static_cast<uint64_t>(first.steps()));
    EXPECT_EQ(watch.ended, watch.begun);
  }
  EXPECT_GT(second.steps_planned_ahead(), 0);
  EXPECT_EQ(second.steps_planned_ahead(), first.steps_planned_ahead());
  EXPECT_EQ(second.blocks(), first.blocks());
}

TEST(RankLoopTest, ToldToCollectNothingIsABug) {
  QueueBus bus;
  internal::StepPlan plan;
  plan.set_collect(true);
  ASSERT_TRUE(bus.Publish(plan.SerializeAsString()).ok());
  ToyRunner runner(ToyLimits());
  EXPECT_EQ(ExitCodeOf(RunRank(runner, &bus, nullptr, nullptr)), ExitCode::kBug);
}

}  // namespace
}  // namespace bulkhead
