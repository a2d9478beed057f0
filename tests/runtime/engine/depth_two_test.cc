// The coordinator and its loop while a runner computes one step and the next one is planned:
// requests get the same results as with one step at a time.
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/engine/logits_processor.h"
#include "runtime/engine/rank_loop.h"
#include "runtime/engine/refusal.h"
#include "tests/runtime/engine/held_runner.h"
#include "tests/runtime/engine/recording_sink.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

SchedulerLimits DepthTwo() {
  SchedulerLimits limits = ToyLimits();
  limits.depth = 2;
  return limits;
}

Coordinator::Options OptionsOf(const SchedulerLimits& limits, const Tokenizer* tokenizer) {
  Coordinator::Options options;
  options.limits = limits;
  options.eos_ids = {kToyEos};
  options.tokenizer = tokenizer;
  return options;
}

std::vector<Request> RandomRequests(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](uint32_t bound) { return static_cast<int>(random() % bound); };
  std::vector<Request> requests;
  for (int i = 0; i < 60; ++i) {
    Request request = ToyRequest(1 + below(40), 1 + below(24), i);
    if (i > 0 && below(2) == 0) {  // shares a prefix
      request.prompt = requests[below(i)].prompt;
      request.prompt.push_back(static_cast<TokenId>(below(kToyVocab)));
    }
    request.priority = below(3);
    request.stopping.ignore_eos = below(2) == 0;
    request.stopping.min_tokens = below(4);
    if (below(4) == 0) request.stopping.stop_token_ids = {3, 8};
    if (below(8) == 0) request.num_logprobs = 2;
    if (i % 12 == 5) request.logits = ToyLogitsParams(5 * i + 1);
    if (below(8) == 0) request.sampling.temperature = 1;  // without top_k
    const ToyResult alone = ToyGenerate(request, {kToyEos}, ToyLimits().max_model_len);
    const std::string text = LetterTokenizer::Text(alone.tokens);
    if (below(3) == 0 && text.size() > 3) {
      request.stopping.stop = {text.substr(below(static_cast<uint32_t>(text.size()) - 1), 2)};
    }
    if (below(6) == 0 && alone.tokens.size() > 4) {
      request.emitted.assign(alone.tokens.begin(), alone.tokens.begin() + 3);
      if (request.logits.grammar != nullptr) FollowGrammar(request.emitted, request.logits);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::string text;
  FinishReason reason = FinishReason::kMaxTokens;
  bool operator==(const Answer&) const = default;
};

struct RunResult {
  std::vector<Answer> answers;
  int64_t steps_planned_ahead = 0;
};

RunResult RunAll(const SchedulerLimits& limits, const std::vector<Request>& requests) {
  LetterTokenizer tokenizer;
  ToyRunner runner(limits);
  Coordinator coordinator(OptionsOf(limits, &tokenizer));
  coordinator.SetServing();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (const Request& request : requests) {
    sinks.push_back(std::make_shared<RecordingSink>());
    EXPECT_TRUE(coordinator.Submit(request, sinks.back()).ok());
  }
  coordinator.BeginDrain(absl::InfiniteDuration());
  EXPECT_TRUE(RunRank(runner, nullptr, &coordinator, nullptr).ok());
  EXPECT_EQ(coordinator.Load().scheduler.num_blocks_used, 0);
  RunResult result;
  result.steps_planned_ahead = runner.steps_planned_ahead();
  for (const auto& sink : sinks) {
    const RequestEnd end = sink->WaitForEnd();
    EXPECT_TRUE(end.status.ok()) << end.status;
    result.answers.push_back({sink->tokens(), sink->text(), end.reason});
  }
  return result;
}

class DepthTwoMixTest : public testing::TestWithParam<std::tuple<Admission, bool, uint32_t>> {};

TEST_P(DepthTwoMixTest, EveryStreamIsThatOfOneStepAtATime) {
  const auto [admission, prefix_caching, seed] = GetParam();
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 6;
  limits.num_kv_blocks = 24;
  limits.admission = admission;
  limits.prefix_caching = prefix_caching;
  const std::vector<Request> requests = RandomRequests(seed);
  const RunResult one = RunAll(limits, requests);
  limits.depth = 2;
  const RunResult two = RunAll(limits, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(two.answers[i].tokens, one.answers[i].tokens) << "request " << i;
    EXPECT_TRUE(two.answers[i] == one.answers[i]) << "request " << i;
  }
  EXPECT_EQ(one.steps_planned_ahead, 0);
  EXPECT_GT(two.steps_planned_ahead, 100);
}

INSTANTIATE_TEST_SUITE_P(All, DepthTwoMixTest,
                         testing::Combine(testing::Values(Admission::kReserve,
                                                          Admission::kOptimistic),
                                          testing::Bool(), testing::Values(1, 2, 3)));

TEST(DepthTwoTest, ATokenThatTheHostSamplesIsCommittedBeforeTheNextStep) {
  Request greedy = ToyRequest(4, 12, 1);
  Request warm = ToyRequest(4, 12, 4);  // without top_k
  warm.sampling.temperature = 1;
  EXPECT_EQ(RunAll(DepthTwo(), {warm}).steps_planned_ahead,
            RunAll(DepthTwo(), {greedy}).steps_planned_ahead);
  Request logprobs = ToyRequest(4, 12, 2);
  logprobs.num_logprobs = 1;
  EXPECT_GT(RunAll(DepthTwo(), {greedy}).steps_planned_ahead, 0);
  EXPECT_EQ(RunAll(DepthTwo(), {logprobs}).steps_planned_ahead, 0);
  EXPECT_EQ(RunAll(DepthTwo(), {greedy, logprobs}).steps_planned_ahead, 0);
  Request penalised = ToyRequest(4, 12, 3);
  penalised.logits.presence_penalty = 1;
  EXPECT_EQ(RunAll(DepthTwo(), {penalised}).steps_planned_ahead, 0);
}

class DepthTwoLoopTest : public testing::Test {
 protected:
  static constexpr int64_t kAll = int64_t{1} << 60;

  DepthTwoLoopTest() : runner_(DepthTwo()), coordinator_(OptionsOf(DepthTwo(), nullptr)) {
    coordinator_.SetServing();
    loop_ = std::thread([this] { status_ = RunRank(runner_, nullptr, &coordinator_, nullptr); });
  }
  void TearDown() override {
    if (!loop_.joinable()) return;
    runner_.Allow(kAll);
    coordinator_.BeginDrain(absl::ZeroDuration());
    loop_.join();
  }
  std::shared_ptr<RecordingSink> Submit(const Request& request) {
    auto sink = std::make_shared<RecordingSink>();
    EXPECT_TRUE(coordinator_.Submit(request, sink).ok());
    return sink;
  }

  HeldRunner runner_;
  Coordinator coordinator_;
  std::thread loop_;
  absl::Status status_;
};

TEST_F(DepthTwoLoopTest, TheNextStepIsSubmittedWhileTheFirstLasts) {
  const auto sink = Submit(ToyRequest(4, 5));
  runner_.WaitUntilBegun(2);
  EXPECT_TRUE(sink->tokens().empty());
  runner_.Allow(1);
  runner_.WaitUntilBegun(3);
  EXPECT_EQ(sink->tokens().size(), 1);
  runner_.Allow(kAll);
  EXPECT_TRUE(sink->WaitForEnd().status.ok());
  EXPECT_EQ(sink->tokens().size(), 5);
}

TEST_F(DepthTwoLoopTest, ACancelEndsTheRequestWhileItsLastStepIsInFlight) {
  const auto sink = Submit(ToyRequest(4, 50));
  runner_.WaitUntilBegun(2);
  coordinator_.Cancel("r0", absl::CancelledError("enough"), nullptr);
  runner_.Allow(1);
  EXPECT_EQ(sink->WaitForEnd().status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(sink->tokens().size(), 1);
  EXPECT_GT(coordinator_.Load().scheduler.num_blocks_used, 0);  // a step may still write to them
  coordinator_.BeginDrain(absl::InfiniteDuration());
  runner_.Allow(2);
  loop_.join();
  EXPECT_TRUE(status_.ok());
  EXPECT_EQ(coordinator_.Load().scheduler.num_blocks_used, 0);
}

TEST_F(DepthTwoLoopTest, ADrainWhoseTimeIsOverStillCollectsWhatIsInFlight) {
  const auto sink = Submit(ToyRequest(4, 50));
  runner_.WaitUntilBegun(2);
  coordinator_.BeginDrain(absl::ZeroDuration());
  runner_.Allow(1);
  EXPECT_EQ(ReasonOf(sink->WaitForEnd().status), "DRAINING");
  runner_.Allow(2);
  loop_.join();
  EXPECT_TRUE(status_.ok());
  EXPECT_EQ(sink->tokens().size(), 1);
}

TEST_F(DepthTwoLoopTest, AStepThatFailsEndsEveryRequestWithTwoInFlight) {
  const auto first = Submit(ToyRequest(4, 50, 1));
  runner_.WaitUntilBegun(2);
  const auto second = Submit(ToyRequest(4, 50, 2));
  runner_.FailWith(absl::InternalError("the device is lost"));
  runner_.Allow(kAll);
  EXPECT_EQ(first->WaitForEnd().status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(second->WaitForEnd().status.code(), absl::StatusCode::kInternal);
  loop_.join();
  EXPECT_EQ(status_.code(), absl::StatusCode::kInternal);
}

TEST_F(DepthTwoLoopTest, FailEndsEverythingWhileTwoStepsHang) {
  const auto sink = Submit(ToyRequest(4, 50));
  runner_.WaitUntilBegun(2);
  coordinator_.Fail(absl::UnavailableError("rank 1 ended"));
  EXPECT_EQ(sink->WaitForEnd().status.message(), "rank 1 ended");
  runner_.Allow(kAll);  // the steps return after all: their tokens are dropped
  loop_.join();
  EXPECT_EQ(status_.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(sink->tokens().empty());
}

}  // namespace
}  // namespace bulkhead
