// Requests that go on where a client's connection was lost.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/engine/coordinator.h"
#include "runtime/engine/refusal.h"
#include "runtime/structured/automaton.h"
#include "runtime/structured/token_trie.h"
#include "tests/runtime/engine/coordinator_fixture.h"
#include "tests/runtime/structured/grammars.h"

namespace bulkhead {
namespace {

TEST_F(CoordinatorTest, ResumedRequestGoesOnWhereItsClientStopped) {
  Begin();
  coordinator_->SetServing();
  runner_->Allow(kAll);
  const Request whole = ToyRequest(5, 9);
  const std::vector<TokenId> tokens = Want(whole).tokens;
  Request resumed = whole;
  resumed.emitted.assign(tokens.begin(), tokens.begin() + 4);
  resumed.text_bytes_sent = 3;
  const auto sink = Submit(resumed);
  const RequestEnd end = sink->WaitForEnd();
  EXPECT_EQ(end.completion_tokens, 9);
  EXPECT_EQ(sink->first_position(), 4);
  EXPECT_EQ(sink->tokens(), std::vector<TokenId>(tokens.begin() + 4, tokens.end()));
  EXPECT_EQ(sink->text(), LetterTokenizer::Text(tokens).substr(3));
}

TEST_F(CoordinatorTest, TextThatEndsWithinACharacterIsNotContinued) {
  tokenizer_.SetHalves();
  Begin();
  coordinator_->SetServing();
  runner_->Allow(kAll);
  Request resumed = ToyRequest(5, 8);
  const std::vector<TokenId> tokens = Want(resumed).tokens;
  // Of the emitted tokens' text, and of the text that is still to come.
  for (const size_t emitted : {4, 1}) {
    resumed.emitted.assign(tokens.begin(), tokens.begin() + emitted);
    resumed.text_bytes_sent = emitted > 1 ? 3 : 1;
    const auto sink = Submit(resumed);
    const RequestEnd end = sink->WaitForEnd();
    EXPECT_EQ(end.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(end.status), "INVALID_VALUE");
    EXPECT_EQ(sink->text(), "");
  }
}

TEST_F(CoordinatorTest, ResumedRequestThatHadEndedEndsAgainTheSameWay) {
  Begin();
  coordinator_->SetServing();
  runner_->Allow(kAll);
  Request resumed = ToyRequest(5, 4);
  resumed.emitted = Want(resumed).tokens;
  resumed.text_bytes_sent = 2;
  auto sink = Submit(resumed);
  EXPECT_EQ(sink->WaitForEnd().reason, FinishReason::kMaxTokens);
  EXPECT_EQ(sink->text(), LetterTokenizer::Text(resumed.emitted).substr(2));
  EXPECT_TRUE(sink->tokens().empty());
  resumed.stopping.max_tokens = 40;
  resumed.stopping.stop_token_ids = {resumed.emitted[3]};
  sink = Submit(resumed);
  EXPECT_EQ(sink->WaitForEnd().reason, FinishReason::kStopToken);
}

TEST_F(CoordinatorTest, AResumedAnswerThatFillsTheModelsLengthEndsAgainTheSameWay) {
  Begin();
  coordinator_->SetServing();
  runner_->Allow(kAll);
  Request resumed = ToyRequest(5, 59);
  resumed.emitted = Want(resumed).tokens;
  ASSERT_EQ(static_cast<int>(5 + resumed.emitted.size()), limits_.max_model_len);
  auto sink = Submit(resumed);
  RequestEnd end = sink->WaitForEnd();
  EXPECT_EQ(end.reason, FinishReason::kMaxTokens);
  EXPECT_EQ(end.completion_tokens, 59);
  EXPECT_EQ(coordinator_->Metrics().prompt_tokens, 0) << "it is not computed again";
  EXPECT_EQ(sink->text(), LetterTokenizer::Text(resumed.emitted));
  EXPECT_TRUE(sink->tokens().empty());
  resumed.stopping.max_tokens = 100;
  EXPECT_EQ(Submit(resumed)->WaitForEnd().reason, FinishReason::kModelLength);
  resumed.stopping.stop = {LetterTokenizer::Text(resumed.emitted).substr(56)};
  EXPECT_EQ(Submit(resumed)->WaitForEnd().reason, FinishReason::kStopString);
  resumed.emitted.push_back(1);
  const absl::Status refused = coordinator_->Submit(resumed, std::make_shared<RecordingSink>());
  EXPECT_EQ(ReasonOf(refused), "PROMPT_TOO_LONG");
}

TEST_F(CoordinatorTest, AResumedAnswerGoesOnInItsGrammar) {
  Begin();
  coordinator_->SetServing();
  runner_->Allow(kAll);
  std::vector<std::string> texts = {"", "a", "b", "c"};
  texts.resize(kToyVocab);
  const structured::TokenTrie trie(texts);
  Request whole = ToyRequest(5, 20);
  whole.logits.grammar = std::make_shared<structured::Automaton>(
      *structured::RegexGrammar("([ab]{2}c)*"), &trie, size_t{1} << 20);
  const auto all = Submit(whole);
  EXPECT_TRUE(all->WaitForEnd().status.ok());
  const std::vector<TokenId> tokens = all->tokens();
  for (const size_t emitted : {1, 5, 19}) {
    Request resumed = whole;
    resumed.emitted.assign(tokens.begin(), tokens.begin() + emitted);
    FollowGrammar(resumed.emitted, resumed.logits);
    const auto sink = Submit(resumed);
    EXPECT_TRUE(sink->WaitForEnd().status.ok());
    EXPECT_EQ(sink->tokens(), std::vector<TokenId>(tokens.begin() + emitted, tokens.end()));
  }
  whole.emitted = {1, 3};  // not of the grammar
  FollowGrammar(whole.emitted, whole.logits);
  const uint64_t computed = coordinator_->Load().scheduler.prompt_tokens_total;
  EXPECT_EQ(Submit(whole)->WaitForEnd().status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(coordinator_->Load().scheduler.prompt_tokens_total, computed);
}

TEST_F(CoordinatorTest, AResumedAnswerOfACompleteGrammarEndsWithoutAnotherToken) {
  Begin();
  coordinator_->SetServing();
  runner_->Allow(kAll);
  std::vector<std::string> texts = {"", "a", "b"};  // 0 ends a sequence
  texts.resize(40);
  const structured::TokenTrie trie(texts);
  for (const int max_tokens : {2, 9}) {
    Request resumed = ToyRequest(5, max_tokens);
    resumed.stopping.min_tokens = max_tokens - 1;
    resumed.logits.grammar = std::make_shared<structured::Automaton>(
        *structured::RegexGrammar("ab"), &trie, size_t{1} << 20);
    resumed.emitted = {1, 2};
    FollowGrammar(resumed.emitted, resumed.logits);
    const auto sink = Submit(resumed);
    const RequestEnd end = sink->WaitForEnd();
    EXPECT_TRUE(end.status.ok()) << end.status;
    EXPECT_EQ(end.reason, FinishReason::kEos);
    EXPECT_EQ(end.completion_tokens, 2);
    EXPECT_TRUE(sink->tokens().empty());
  }
}

// Counts the tokens that it decodes.
class CountingTokenizer final : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, bool add) const override {
    return letters_.Encode(text, add);
  }
  std::string Decode(absl::Span<const int32_t> ids, bool skip) const override {
    decoded_ += ids.size();
    return letters_.Decode(ids, skip);
  }
  int vocab_size() const override { return letters_.vocab_size(); }
  size_t TakeDecoded() { return std::exchange(decoded_, 0); }

 private:
  const LetterTokenizer letters_{};
  mutable size_t decoded_ = 0;
};

TEST(CoordinatorResumeTest, TheThreadThatSubmitsDecodesWhatWasEmittedNotTheRankLoops) {
  CountingTokenizer tokenizer;
  Coordinator::Options options;
  options.limits = ToyLimits();
  options.tokenizer = &tokenizer;
  Coordinator coordinator(std::move(options));
  coordinator.SetServing();
  for (const int max_tokens : {30, 20}) {  // the second one ends
    Request request = ToyRequest(5, max_tokens, max_tokens);
    request.emitted.assign(20, 1);
    const auto sink = std::make_shared<RecordingSink>();
    ASSERT_TRUE(coordinator.Submit(std::move(request), sink).ok());
    EXPECT_EQ(tokenizer.TakeDecoded(), 20U);
  }
  ASSERT_TRUE(coordinator.NextStep().ok());
  EXPECT_EQ(coordinator.Load().scheduler.num_running, 1);
  EXPECT_EQ(tokenizer.TakeDecoded(), 0U);
}

TEST(CoordinatorResumeTest, FewTokensOfRequestsThatArriveTogetherAreStartedWithAStep) {
  constexpr int kTokens = 400'000;
  Coordinator::Options options;
  options.limits = ToyLimits();
  options.limits.max_model_len = 2 * kTokens;
  options.limits.num_kv_blocks = kTokens / 2;
  options.limits.max_num_batched_tokens = 16;
  Coordinator coordinator(std::move(options));
  coordinator.SetServing();
  for (int i = 0; i < 7; ++i) {
    Request request = ToyRequest(kTokens / 2, kTokens, i);
    request.emitted.assign(kTokens / 2, 1);
    ASSERT_TRUE(coordinator.Submit(std::move(request), std::make_shared<RecordingSink>()).ok());
  }
  for (const int started : {3, 6, 7, 7}) {
    ASSERT_TRUE(coordinator.NextStep().ok());
    const SchedulerLoad load = coordinator.Load().scheduler;
    EXPECT_EQ(load.num_running, 1);
    EXPECT_EQ(load.num_waiting, 6) << "wherever they wait";
    EXPECT_EQ(load.pressure.peak_waiting, started - 1);
    coordinator.Commit({});
  }
}

}  // namespace
}  // namespace bulkhead
