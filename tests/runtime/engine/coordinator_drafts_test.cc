#include <string>
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
  const EngineMetrics metrics = coordinator_->Metrics();
  EXPECT_EQ(metrics.num_speculative_tokens, 3);
  EXPECT_GT(metrics.drafts.accepted_by_position[2], 20U);
  EXPECT_LT(metrics.drafts.accepted_tokens, metrics.drafts.draft_tokens);
  // Accepted tokens took no steps of their own, nor do any that a stop string cut off.
  EXPECT_LT(metrics.steps, generated - metrics.drafts.accepted_tokens / 2);
}

}  // namespace
}  // namespace bulkhead
