// Many grammars of answers that take much work.
#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/structured/matcher.h"
#include "tests/runtime/engine/coordinator_fixture.h"
#include "tests/runtime/engine/toy_model.h"
#include "tests/runtime/structured/grammars.h"

namespace bulkhead {
namespace {

using structured::Automaton;
using ::testing::Each;
using ::testing::Ge;

// One of its own for each request.
std::shared_ptr<Automaton> NewGrammar(const std::string& pattern) {
  static const auto* const trie = [] {
    std::vector<std::string> tokens(kToyVocab);
    for (TokenId id = 1; id < kToyVocab; ++id) {
      for (int i = 0; i <= id % 40; ++i) tokens[id] += (id * (i + 3)) % 7 < 3 ? 'a' : 'b';
    }
    return new structured::TokenTrie(tokens);
  }();
  return std::make_shared<Automaton>(*structured::RegexGrammar(pattern), trie, size_t{4} << 20);
}

class SchedulerGrammarsTest : public testing::Test {
 protected:
  static SchedulerLimits Limits() {
    SchedulerLimits limits = ToyLimits();
    limits.max_num_seqs = 32;
    limits.max_num_batched_tokens = 256;
    limits.num_kv_blocks = 1000;
    return limits;
  }

  // Of each the first mask takes most of a million units, and so does following a token.
  void SubmitCostly(int count, int max_tokens) {
    for (int i = 0; i < count; ++i) {
      Request request = ToyRequest(3, max_tokens, i);
      request.logits.grammar = NewGrammar(absl::StrCat("(([ab]{1,30}){1,30})+c", i));
      Submit(std::move(request));
    }
  }
  SequenceId Submit(Request request) {
    if (request.logits.grammar != nullptr) forms_.push_back(request.logits.grammar);
    requests_.push_back(request);
    ids_.push_back(*loop_.Submit(std::move(request)));
    return ids_.back();
  }
  int64_t Work() const {
    int64_t work = 0;
    for (const auto& grammar : forms_) work += grammar->total_work();
    return work;
  }

  ToyLoop loop_{Limits()};
  std::vector<std::shared_ptr<Automaton>> forms_;
  std::vector<Request> requests_;
  std::vector<SequenceId> ids_;
};

TEST_F(SchedulerGrammarsTest, AStepDoesLittleOfTheWorkOfManyAndOthersGoOn) {
  SubmitCostly(20, 4);
  const SequenceId plain = Submit(ToyRequest(3, 30, 100));
  int64_t most = 0;
  for (size_t step = 1; step <= 30; ++step) {
    const int64_t before = Work();
    loop_.Step();
    most = std::max(most, Work() - before);
    ASSERT_EQ(loop_.TokensOf(plain).size(), step);
  }
  EXPECT_GT(Work(), 50'000'000);
  EXPECT_LE(most, kGrammarWorkOfStep + Automaton::kMaxWork + kTokenWorkOfStep);
  loop_.RunToEnd();
  for (size_t i = 0; i < ids_.size(); ++i) {
    ASSERT_NE(loop_.EndOf(ids_[i]), nullptr);
    EXPECT_TRUE(loop_.EndOf(ids_[i])->status.ok()) << loop_.EndOf(ids_[i])->status;
    EXPECT_EQ(loop_.TokensOf(ids_[i]), ToyGenerate(requests_[i], {kToyEos}, 64).tokens);
  }
}

TEST_F(SchedulerGrammarsTest, AGrammarOfLittleWorkGoesBeforeCostlyOnes) {
  SubmitCostly(20, 20);
  Request request = ToyRequest(3, 20, 100);
  request.logits.grammar = NewGrammar("[ab]{500,900}c");
  const SequenceId light = Submit(std::move(request));
  for (int step = 0; step < 80; ++step) loop_.Step();
  EXPECT_NE(loop_.EndOf(light), nullptr);
  std::vector<size_t> tokens;
  for (size_t i = 0; i < 20; ++i) tokens.push_back(loop_.TokensOf(ids_[i]).size());
  EXPECT_THAT(tokens, Each(Ge(1)));
}

TEST(FormsOfDraftsTest, TheyTakeTheWorkThatTheNextTokensOfAllHaveLeft) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 8;
  limits.max_num_batched_tokens = 64;
  limits.num_kv_blocks = 200;
  for (const bool mtp : {false, true}) {
    limits.drafts = {
        .num_speculative_tokens = 4, .draft_model_len = limits.max_model_len, .mtp = mtp};
    ToyLoop loop(limits);
    loop.runner().SetDraftErrors(DraftErrors::kNone);
    std::vector<SequenceId> ids;
    for (int i = 0; i < 4; ++i) {
      Request request = ToyRequest(3, 50, i);
      request.logits.grammar = NewGrammar(absl::StrCat("(([ab]{1,30}){1,30})+c", i));
      ids.push_back(*loop.Submit(std::move(request)));
    }
    std::vector<size_t> tokens;
    for (int step = 0; step < 60; ++step) loop.Step();
    for (const SequenceId id : ids) tokens.push_back(loop.TokensOf(id).size());
    const size_t most = *std::max_element(tokens.begin(), tokens.end());
    EXPECT_THAT(tokens, Each(Ge(2 * most / 3)));
  }
}

// Behind 1,200 bytes a byte is some 20 thousand units of work; token 39 has 40, token 40 has one.
constexpr char kAmbiguous[] = "[ab]*a[ab]{0,2000}c";

Request Resumed(std::shared_ptr<Automaton> grammar, int emitted, int max_tokens) {
  Request request = ToyRequest(3, max_tokens);
  request.emitted.assign(emitted, 39);
  request.logits.grammar = std::move(grammar);
  FollowGrammar(request.emitted, request.logits);
  EXPECT_TRUE(request.logits.reached_status.ok()) << request.logits.reached_status;
  return request;
}

TEST(HeldTokenTest, WhatIsMoreWorkThanACommitHasIsEmittedByLaterSteps) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 20;
  limits.max_model_len = 64;
  limits.max_num_batched_tokens = 2000;
  limits.num_kv_blocks = 1000;
  KvBlockPool pool(limits.num_kv_blocks);
  Scheduler scheduler(limits, {kToyEos}, pool);
  const auto grammar = NewGrammar(kAmbiguous);
  const Request request = Resumed(grammar, 30, 32);
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(scheduler.Submit(request).ok());
  const auto bounded = NewGrammar("b([ab]{1,2}){1,620}");  // 1,241 bytes, and no more
  ASSERT_TRUE(scheduler.Submit(Resumed(bounded, 30, 32)).ok());
  const auto work = [&] { return grammar->total_work() + bounded->total_work(); };
  const auto run = [&](TokenId token) {
    const std::optional<Step> step = scheduler.PlanStep();
    std::vector<Emission> emissions = scheduler.TakeFollowed();
    if (!step.has_value()) return emissions;
    StepResult result;
    for (size_t i = 0; i < step->samples.size(); ++i) {
      result.samples.emplace_back(GeneratedToken{token, {}, {}});
    }
    for (Emission& emission : scheduler.Commit(std::move(result))) {
      emissions.push_back(std::move(emission));
    }
    scheduler.CheckInvariants();
    return emissions;
  };
  std::vector<Emission> first = run(40);
  while (first.size() < 17) {
    for (Emission& emission : run(40)) first.push_back(std::move(emission));
    ASSERT_FALSE(scheduler.idle());
  }
  std::vector<Emission> last;
  size_t rounds = 0;
  while (!scheduler.idle()) {
    const int64_t before = work();
    for (Emission& emission : run(39)) last.push_back(std::move(emission));
    EXPECT_LE(work() - before, kGrammarWorkOfStep + Automaton::kMaxWork + kTokenWorkOfStep +
                                   17 * LogitsProcessor::kFreeTokenWork);
    ASSERT_LT(++rounds, 100);
  }
  EXPECT_GT(rounds, 4);
  EXPECT_EQ(last.size(), 17);
  for (const Emission& emission : last) {
    EXPECT_TRUE(emission.status.ok()) << emission.status;
    ASSERT_TRUE(emission.token.has_value() && emission.finish.has_value());
    EXPECT_EQ(emission.token->id, 39);
    const auto want = emission.id == 17 ? FinishReason::kEos : FinishReason::kMaxTokens;
    EXPECT_EQ(emission.finish->reason, want);
  }
  EXPECT_EQ(scheduler.load().generation_tokens_total, 34);
}

// Of tokens and alternatives that each have a set of counts of their own.
std::shared_ptr<Automaton> NewCostlyGrammar() {
  static const auto* const trie = [] {
    std::vector<std::string> tokens(kToyVocab);
    std::minstd_rand random(7);
    for (TokenId id = 1; id < kToyVocab; ++id) {
      for (int i = 0; i < 40; ++i) tokens[id] += random() / 64 % 2 == 0 ? 'a' : 'b';
    }
    return new structured::TokenTrie(tokens);
  }();
  std::string pattern = "[ab]*a[ab]{44}x";
  for (int i = 0; i < 30; ++i) absl::StrAppend(&pattern, "|[ab]*a[ab]{44}", i);
  return std::make_shared<Automaton>(*structured::RegexGrammar(pattern), trie, size_t{64} << 20);
}

TEST(CostlyMaskTest, AMaskOfMoreThanAStepsWorkIsMadeInSeveralStepsAndOthersGoOn) {
  SchedulerLimits limits = ToyLimits();
  limits.max_model_len = 128;
  limits.num_kv_blocks = 200;
  for (const bool has_others : {true, false}) {
    ToyLoop loop(limits);
    Request request = ToyRequest(3, 1);
    request.logits.grammar = NewCostlyGrammar();
    const SequenceId costly = *loop.Submit(request);
    const SequenceId plain = has_others ? *loop.Submit(ToyRequest(3, 100, 1)) : 0;
    size_t steps = 0;
    for (; loop.EndOf(costly) == nullptr; ++steps) {
      const int64_t before = request.logits.grammar->total_work();
      loop.Step();
      ASSERT_LT(steps, 90);
      const int64_t work = request.logits.grammar->total_work() - before;
      if (has_others) {
        EXPECT_LE(work, kGrammarWorkOfStep + Automaton::kMaxWork + kTokenWorkOfStep);
        EXPECT_EQ(loop.TokensOf(plain).size(), steps + 1);
      }
    }
    EXPECT_TRUE(loop.EndOf(costly)->status.ok()) << loop.EndOf(costly)->status;
    EXPECT_EQ(loop.TokensOf(costly).size(), 1);
    EXPECT_GT(request.logits.grammar->total_work(), Automaton::kMaxWork);
    EXPECT_GT(steps, 1);
  }
}

TEST(CostlyMaskTest, APromptBesideAnAnswerThatWaitsForItsMaskHasTheChunksOfThePace) {
  SchedulerLimits limits = ToyLimits();
  limits.max_model_len = 400;
  limits.max_num_batched_tokens = 256;
  limits.num_kv_blocks = 400;
  ToyLoop loop(limits);
  loop.scheduler().SetStepTarget(
      {.estimate = {.least_s = 0.01, .token_s = 0.001}, .itl = absl::Milliseconds(50)});
  Request request = ToyRequest(3, 2);
  request.logits.grammar = NewCostlyGrammar();
  const SequenceId costly = *loop.Submit(request);
  while (loop.TokensOf(costly).empty()) loop.Step();
  ASSERT_TRUE(loop.Submit(ToyRequest(300, 1, 1)).ok());
  int without_row = 0;
  while (loop.EndOf(costly) == nullptr) {
    loop.Step();
    without_row += loop.plan().slot_size() == 1 ? 1 : 0;
    EXPECT_LE(loop.plan().token_ids_size(), 64 + 1);
  }
  EXPECT_GT(without_row, 0);
  loop.RunToEnd();
}

// More than a quarter of a step of 16 tokens, so a long one.
TEST(CostlyMaskTest, ALongPromptWhoseMaskIsBeingMadeHoldsUpNoPrompt) {
  SchedulerLimits limits = ToyLimits();
  limits.max_model_len = 128;
  limits.max_num_seqs = 16;
  limits.num_kv_blocks = 1000;
  ToyLoop loop(limits);
  SequenceId costly = 0;
  for (int i = 0; i < 8; ++i) {
    Request request = ToyRequest(i < 7 ? 3 : 12, 1, i);
    request.logits.grammar = NewCostlyGrammar();
    costly = *loop.Submit(request);
  }
  for (int step = 0; step < 3; ++step) loop.Step();
  int prompts = 0;
  for (; loop.EndOf(costly) == nullptr; ++prompts) {
    ASSERT_LT(prompts, 90);
    const SequenceId brief = *loop.Submit(ToyRequest(3, 1, prompts));
    const SequenceId other_long = *loop.Submit(ToyRequest(12, 1, prompts));
    loop.Step();
    loop.Step();
    EXPECT_NE(loop.EndOf(brief), nullptr) << prompts;
    EXPECT_NE(loop.EndOf(other_long), nullptr) << prompts;
  }
  EXPECT_TRUE(loop.EndOf(costly)->status.ok()) << loop.EndOf(costly)->status;
  EXPECT_GT(prompts, 8);
}

TEST(HeldTokenTest, AnswersAreThoseOfEachRequestAlone) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 12;
  limits.max_num_batched_tokens = 1000;
  limits.num_kv_blocks = 1000;
  Request request = Resumed(NewGrammar(kAmbiguous), 30, 36);
  request.logits.allowed = {39, 40};
  ToyLoop together(limits);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 12; ++i) {
    request.prompt[0] = i;
    ids.push_back(*together.Submit(request));
  }
  together.RunToEnd();
  for (int i = 0; i < 12; ++i) {
    ToyLoop loop(limits);
    request.prompt[0] = i;
    const SequenceId alone = *loop.Submit(request);
    loop.RunToEnd();
    EXPECT_EQ(together.TokensOf(ids[i]), loop.TokensOf(alone));
    EXPECT_EQ(loop.TokensOf(alone).size(), 6);
    EXPECT_TRUE(together.EndOf(ids[i])->status.ok()) << together.EndOf(ids[i])->status;
  }
}

TEST_F(CoordinatorTest, HeldTokensAreDelivered) {
  SchedulerLimits limits = ToyLimits();
  limits.max_num_seqs = 12;
  limits.max_num_batched_tokens = 1000;
  limits.num_kv_blocks = 1000;
  Begin(limits);
  coordinator_->SetServing();
  Request request = Resumed(NewGrammar(kAmbiguous), 30, 31);
  request.logits.allowed = {39};
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 12; ++i) {
    request.request_id = absl::StrCat("held", i);
    sinks.push_back(Submit(request));
  }
  runner_->Allow(kAll);
  for (const auto& sink : sinks) {
    const RequestEnd end = sink->WaitForEnd();
    EXPECT_TRUE(end.status.ok()) << end.status;
    EXPECT_EQ(end.reason, FinishReason::kMaxTokens);
    EXPECT_EQ(sink->tokens(), std::vector<TokenId>{39});
  }
}

TEST(HeldTokenTest, ASequenceThatIsPreemptedWithAHeldTokenGoesOn) {
  std::string pattern = "(";
  for (int i = 0; i < 10; ++i)
    absl::StrAppend(&pattern, "[ab]*", i % 2 ? "a" : "b", "[ab]{1990,200", i, "}|");
  Request request = Resumed(NewGrammar(pattern + ")c"), 17, 20);
  int64_t work = 0;
  structured::Matcher next(*request.logits.reached);
  ASSERT_TRUE(next.Accept(39, Automaton::kMaxWork, &work).ok());
  ASSERT_GT(work, kTokenWorkOfStep + LogitsProcessor::kFreeTokenWork);
  request.logits.allowed = {39};
  for (int prompt = 1; prompt < 4; ++prompt) {
    SchedulerLimits limits = ToyLimits();
    limits.admission = Admission::kOptimistic;
    limits.num_kv_blocks = 8;
    limits.max_num_batched_tokens = 64;
    ToyLoop loop(limits);
    const SequenceId plain = *loop.Submit(ToyRequest(prompt, 14));
    const SequenceId held = *loop.Submit(request);
    loop.RunToEnd();
    EXPECT_EQ(loop.TokensOf(plain).size(), 14);
    EXPECT_EQ(loop.TokensOf(held), std::vector<TokenId>(3, 39));
    ASSERT_NE(loop.EndOf(held), nullptr);
    EXPECT_TRUE(loop.EndOf(held)->status.ok()) << loop.EndOf(held)->status;
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace bulkhead
