#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/engine/coordinator.h"
#include "tests/runtime/engine/coordinator_fixture.h"

namespace bulkhead {
namespace {

TEST_F(CoordinatorTest, DraftsChangeNoTokenNoTextAndNoEnd) {
  SchedulerLimits limits = ToyLimits();
  limits.drafts = {.num_speculative_tokens = 3, .prompt_lookup_max = 2, .prompt_lookup_min = 1};
  Begin(limits);
  coordinator_->SetServing();
  runner_->Allow(kAll);
  uint64_t generated = 0;
  for (int i = 0; i < 200; ++i) {
    Request request = ToyRequest(5, 1 + i % 40, i);
    request.logits.allowed = {5, 6};
    const std::vector<TokenId> tokens = Want(request).tokens;
    const std::string text = LetterTokenizer::Text(tokens);
    if (i % 2 == 0) request.stopping.stop = {text.substr(text.size() / 2, 2)};
    const auto sink = Submit(request);
    const RequestEnd end = sink->WaitForEnd();
    size_t length = text.size();
    if (end.reason == FinishReason::kStopString) {
      length = text.find(request.stopping.stop[0]) + request.stopping.stop[0].size();
      EXPECT_EQ(sink->text(), text.substr(0, length - request.stopping.stop[0].size()));
    } else {
      EXPECT_EQ(sink->text(), text);
    }
    EXPECT_EQ(i % 2 == 0, end.reason == FinishReason::kStopString);
    EXPECT_EQ(sink->tokens(), std::vector<TokenId>(tokens.begin(), tokens.begin() + length));
    EXPECT_EQ(end.completion_tokens, length);
    generated += length;
  }
  // A step's figures come a little after what it delivers.
  coordinator_->BeginDrain(absl::InfiniteDuration());
  loop_.join();
  const EngineMetrics metrics = coordinator_->Metrics();
  EXPECT_EQ(metrics.num_speculative_tokens, 3);
  EXPECT_GT(metrics.drafts.accepted_by_position[2], 20U);
  EXPECT_LT(metrics.drafts.accepted_tokens, metrics.drafts.draft_tokens);
  // Of those that a stop string cut off none is counted.
  EXPECT_EQ(coordinator_->Load().scheduler.generation_tokens_total, generated);
  // Accepted tokens took no steps of their own, nor do any that a stop string cut off.
  EXPECT_LT(metrics.steps, generated - metrics.drafts.accepted_tokens / 2);
}

// Of several samples of a step the last has no token.
class LastFailsRunner final : public StepRunner {
 public:
  explicit LastFailsRunner(const SchedulerLimits& limits) : toy_(limits) {}

  int depth() const override { return toy_.depth(); }
  absl::Status Submit(Step step) override { return toy_.Submit(std::move(step)); }
  absl::StatusOr<StepResult> Collect() override {
    absl::StatusOr<StepResult> result = toy_.Collect();
    if (result->samples.size() > 1) result->samples.back() = absl::InternalError("not finite");
    return result;
  }

 private:
  ToyRunner toy_;
};

TEST(CoordinatorDraftsTest, AFailedRowBehindAStopStringTakesNoTokenFromTheCount) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 1;
  limits.drafts = {.num_speculative_tokens = 3, .prompt_lookup_max = 2, .prompt_lookup_min = 1};
  LastFailsRunner runner(limits);
  const LetterTokenizer tokenizer;
  Coordinator::Options options;
  options.limits = limits;
  options.eos_ids = {kToyEos};
  options.tokenizer = &tokenizer;
  Coordinator coordinator(std::move(options));
  coordinator.SetServing();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 200; ++i) {
    Request request = ToyRequest(16, 40, i);
    // Drafts come from there, across what stops.
    for (TokenId& id : request.prompt) id = 5 + static_cast<TokenId>(ToyHash(i, id) % 2);
    request.logits.allowed = {5, 6};
    request.stopping.stop = {LetterTokenizer::Text({5, 5, 6}), LetterTokenizer::Text({6, 6, 5})};
    sinks.push_back(std::make_shared<RecordingSink>());
    EXPECT_TRUE(coordinator.Submit(request, sinks.back()).ok());
  }
  coordinator.BeginDrain(absl::InfiniteDuration());
  EXPECT_TRUE(RunRank(runner, nullptr, &coordinator, nullptr).ok());
  uint64_t generated = 0;
  for (const auto& sink : sinks) generated += sink->WaitForEnd().completion_tokens;
  EXPECT_EQ(coordinator.Load().scheduler.generation_tokens_total, generated);
}

// Of a device whose steps take as long as is said, and run beside the host.
class TimedRunner final : public StepRunner {
 public:
  TimedRunner(const SchedulerLimits& limits, uint64_t step_ns, std::atomic<uint64_t>& now_ns)
      : toy_(limits), step_ns_(step_ns), now_ns_(now_ns) {}

  int depth() const override { return toy_.depth(); }
  absl::Status Submit(Step step) override {
    const uint64_t before = ends_ns_.empty() ? 0 : ends_ns_.back();
    ends_ns_.push_back(std::max(before, now_ns_.load()) + step_ns_);
    return toy_.Submit(std::move(step));
  }
  absl::StatusOr<StepResult> Collect() override {
    now_ns_ = std::max(now_ns_.load(), ends_ns_.front());
    ends_ns_.pop_front();
    return toy_.Collect();
  }

 private:
  ToyRunner toy_;
  const uint64_t step_ns_;
  std::atomic<uint64_t>& now_ns_;
  std::deque<uint64_t> ends_ns_;
};

// Draft tokens in answers of which hardly one is right, while a token's text takes `text_ns` of the
// host beside steps of 10 ms.
uint64_t NumDrafted(uint64_t text_ns, int num_requests) {
  SchedulerLimits limits = ToyLimits();
  limits.depth = 2;
  limits.max_num_seqs = 1;
  limits.drafts = {.num_speculative_tokens = 3, .prompt_lookup_max = 1, .prompt_lookup_min = 1};
  std::atomic<uint64_t> now_ns{1000};
  SlowTokenizer tokenizer(now_ns);
  tokenizer.SetDelay(text_ns);
  TimedRunner runner(limits, 10'000'000, now_ns);
  Coordinator::Options options;
  options.limits = limits;
  options.eos_ids = {kToyEos};
  options.tokenizer = &tokenizer;
  options.now_ns = [&now_ns] { return now_ns.load(); };
  Coordinator coordinator(std::move(options));
  coordinator.SetServing();
  for (int i = 0; i < num_requests; ++i) {
    EXPECT_TRUE(coordinator.Submit(ToyRequest(20, 40, i), std::make_shared<RecordingSink>()).ok());
  }
  coordinator.BeginDrain(absl::InfiniteDuration());
  EXPECT_TRUE(RunRank(runner, nullptr, &coordinator, nullptr).ok());
  return coordinator.Metrics().drafts.draft_tokens;
}

TEST(CoordinatorDraftsTest, AStepThatVerifiesIsChargedTheHostsTimeThatNoStepHides) {
  constexpr int kRequests = 12;
  EXPECT_GT(NumDrafted(0, kRequests), 8 * kRequests);
  EXPECT_LT(NumDrafted(9'000'000, kRequests), 4 * kRequests);
}

}  // namespace
}  // namespace bulkhead
