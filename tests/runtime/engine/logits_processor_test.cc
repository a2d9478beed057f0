#include "runtime/engine/logits_processor.h"

#include <bit>
#include <cmath>
#include <ctime>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/engine/refusal.h"
#include "runtime/engine/step_runner.h"
#include "runtime/structured/automaton.h"
#include "runtime/structured/matcher.h"
#include "runtime/structured/token_trie.h"
#include "tests/runtime/structured/grammars.h"

namespace bulkhead {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What tests/data/logits_processors/make.py writes.
struct Case {
  LogitsParams params;
  std::vector<TokenId> prompt, generated;
  std::vector<float> logits, want;
};

std::vector<float> Floats(const std::string& hex) {
  std::vector<float> floats;
  for (size_t at = 0; at < hex.size(); at += 8) {
    floats.push_back(
        std::bit_cast<float>(static_cast<uint32_t>(std::stoul(hex.substr(at, 8), nullptr, 16))));
  }
  return floats;
}

std::vector<Case> Goldens() {
  const auto text = ReadSmallFile(BH_TEST_DATA "/logits_processors/golden.json", 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  std::vector<Case> cases;
  const nlohmann::json file = nlohmann::json::parse(*text);
  for (const auto& one : file["cases"]) {
    Case& out = cases.emplace_back();
    out.params.repetition_penalty = one.value("repetition_penalty", 1.0F);
    out.params.frequency_penalty = one.value("frequency_penalty", 0.0F);
    out.params.presence_penalty = one.value("presence_penalty", 0.0F);
    const nlohmann::json biases = one.value("logit_bias", nlohmann::json::object());
    for (const auto& [id, bias] : biases.items()) {
      out.params.bias.push_back({std::stoi(id), bias.get<float>()});
    }
    out.params.allowed = one.value("allowed_token_ids", std::vector<TokenId>());
    out.params.bad_words = one.value("bad_words", std::vector<std::vector<TokenId>>());
    out.prompt = one["prompt"].get<std::vector<TokenId>>();
    out.generated = one["generated"].get<std::vector<TokenId>>();
    out.logits = Floats(one["logits"]);
    out.want = Floats(one["want"]);
  }
  return cases;
}

// Of `emitted` generated tokens at the beginning, `drafted` at the end that are only drafts, and
// others one by one.
std::vector<float> Processed(const Case& one, size_t emitted, size_t drafted = 0) {
  LogitsProcessor processor(one.params);
  std::vector<TokenId> begin = one.prompt;
  begin.insert(begin.end(), one.generated.begin(), one.generated.begin() + emitted);
  const auto prompt_tokens = static_cast<int64_t>(one.prompt.size());
  processor.Begin(begin, prompt_tokens, prompt_tokens + static_cast<int64_t>(one.generated.size()));
  const size_t committed = one.generated.size() - drafted;
  for (size_t i = emitted; i < committed; ++i) {
    EXPECT_TRUE(processor.Add(one.generated[i]).ok());
  }
  std::vector<float> logits = one.logits;
  const auto drafts = absl::MakeConstSpan(one.generated).subspan(committed);
  EXPECT_TRUE(processor.Apply(absl::MakeSpan(logits), drafts).ok());
  return logits;
}

TEST(LogitsProcessorTest, EqualsTheReferencesProcessorsBitByBit) {
  const std::vector<Case> cases = Goldens();
  ASSERT_EQ(cases.size(), 12);
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<float> got = Processed(cases[i], 0);
    ASSERT_EQ(got.size(), cases[i].want.size());
    EXPECT_NE(got, cases[i].logits);
    for (size_t id = 0; id < got.size(); ++id) {
      EXPECT_EQ(std::bit_cast<uint32_t>(got[id]), std::bit_cast<uint32_t>(cases[i].want[id]))
          << "case " << i << " id " << id << ": " << got[id] << " and " << cases[i].want[id];
    }
  }
}

TEST(LogitsProcessorTest, ResumedTokensAreGeneratedOnes) {
  const std::vector<Case> cases = Goldens();
  for (const Case& one : cases) {
    for (size_t emitted = 1; emitted <= one.generated.size(); ++emitted) {
      EXPECT_EQ(Processed(one, emitted), one.want) << emitted;
    }
  }
}

TEST(LogitsProcessorTest, ResumedTokensAreCountedInTheTimeOfASortInAnyOrder) {
  constexpr int64_t kTokens = 400'000;
  std::vector<TokenId> tokens;
  for (int64_t id = kTokens; id > 0; --id) tokens.push_back(static_cast<TokenId>(id));
  LogitsParams params;
  params.presence_penalty = 1;
  LogitsProcessor processor(params);
  const std::clock_t begin = std::clock();
  processor.Begin(tokens, 1, kTokens + 1);
  EXPECT_LT(std::clock() - begin, 3 * CLOCKS_PER_SEC);
}

TEST(LogitsProcessorTest, DraftsCountAsIfTheyHadBeenGenerated) {
  for (const Case& one : Goldens()) {
    for (size_t drafted = 1; drafted <= one.generated.size(); ++drafted) {
      EXPECT_EQ(Processed(one, 0, drafted), one.want) << drafted;
    }
  }
  Case one;
  one.params.bad_words = {{1, 2}, {1, 1, 0}};
  one.prompt = {1, 1, 1};
  one.generated = {0, 2, 1, 1};
  one.logits = {0, 0, 0, 0};
  for (size_t drafted = 0; drafted <= 4; ++drafted) {
    EXPECT_THAT(Processed(one, 0, drafted), ElementsAre(-kInfinity, 0, -kInfinity, 0)) << drafted;
  }
}

TEST(LogitsProcessorTest, PenaltiesOfPromptTokensAreTheRepetitionPenaltyAlone) {
  Case one;
  one.params = {.repetition_penalty = 2,
                .presence_penalty = 0.5F,
                .frequency_penalty = 0.25F,
                .bias = {},
                .allowed = {},
                .bad_words = {},
                .grammar = nullptr};
  one.prompt = {0, 1, 1, kGivenRow};
  one.generated = {1, 2, 2, 2};
  one.logits = {4, 4, -4, 4};
  one.want = {2, 2 - 0.25F - 0.5F, -8 - 0.75F - 0.5F, 4};
  EXPECT_EQ(Processed(one, 0), one.want);
}

TEST(LogitsProcessorTest, ABadWordIsBannedAtItsLastTokenAndInTheOutputAlone) {
  Case one;
  one.params.bad_words = {{3}, {1, 2}, {1, 1, 0}};
  one.prompt = {1, 1, 1};
  one.logits = {0, 0, 0, 0};
  EXPECT_THAT(Processed(one, 0), ElementsAre(0, 0, 0, -kInfinity));
  one.generated = {1};
  EXPECT_THAT(Processed(one, 0), ElementsAre(0, 0, -kInfinity, -kInfinity));
  one.generated = {0, 2, 1, 1};
  EXPECT_THAT(Processed(one, 0), ElementsAre(-kInfinity, 0, -kInfinity, -kInfinity));
  one.generated = {1, 1, 3};
  EXPECT_THAT(Processed(one, 0), ElementsAre(0, 0, 0, -kInfinity));
}

TEST(LogitsProcessorTest, NoBiasBringsBackWhatIsExcludedAndNothingBecomesInfinite) {
  Case one;
  constexpr float kMax = std::numeric_limits<float>::max();
  one.params.allowed = {1, 2, 3};
  one.params.bias = {{0, 100}, {1, 1}};
  one.params.repetition_penalty = 0.01F;
  one.prompt = {0, 1, 2, 3};
  one.logits = {5, -kInfinity, kMax, -kMax};
  EXPECT_THAT(Processed(one, 0), ElementsAre(-kInfinity, -kInfinity, kMax, -kMax * 0.01F));
}

TEST(LogitsProcessorTest, BytesAreOfParametersAndOfATokenCountForEachToken) {
  LogitsParams params;
  EXPECT_EQ(LogitsProcessor::MaxBytes(params, 1000, 4), 0);
  params.bias = {{3, 1.0F}};
  const int64_t biased = LogitsProcessor::MaxBytes(params, 1000, 4);
  EXPECT_EQ(LogitsProcessor::MaxBytes(params, 100'000, 4), biased);
  params.presence_penalty = 1;
  EXPECT_EQ(LogitsProcessor::MaxBytes(params, 1000, 4), biased + 8000);
}

// Tokens a, b, ab, c and the end, id 4, in a vocabulary of 40 ids.
LogitsParams GrammarOf(const std::string& pattern, size_t max_bytes = size_t{1} << 20,
                       std::shared_ptr<structured::Automaton::Pool> pool = nullptr) {
  static const auto* const trie = [] {
    std::vector<std::string> tokens = {"a", "b", "ab", "c"};
    tokens.resize(40);
    return new structured::TokenTrie(tokens);
  }();
  LogitsParams params;
  params.grammar = std::make_shared<structured::Automaton>(*structured::RegexGrammar(pattern), trie,
                                                           max_bytes, std::move(pool));
  return params;
}

// Much for any grammar here.
int64_t work_left = 1'000'000;

TEST(LogitsProcessorTest, BytesAreOfAMaskBehindEachDraft) {
  static const structured::TokenTrie trie(std::vector<std::string>(4000, "a"));
  LogitsParams params;
  params.grammar = std::make_shared<structured::Automaton>(*structured::RegexGrammar("a+"), &trie,
                                                           size_t{1} << 20);
  const int64_t without = LogitsProcessor::MaxBytes(params, 1000, 0);
  EXPECT_GE(without, 1000);
  EXPECT_GE(LogitsProcessor::MaxBytes(params, 1000, 16), without + 16 * 1000);
}

std::vector<TokenId> Kept(LogitsProcessor& processor, absl::Span<const TokenId> drafted = {}) {
  std::vector<float> logits(40, 1.0F);
  EXPECT_TRUE(processor.Prepare(drafted, &work_left));
  EXPECT_TRUE(processor.Apply(absl::MakeSpan(logits), drafted).ok());
  std::vector<TokenId> kept;
  for (TokenId id = 0; id < 40; ++id) {
    if (logits[id] == 1) kept.push_back(id);
  }
  return kept;
}

TEST(LogitsProcessorTest, TokensBeforeThePlaceReachedInTheGrammarAreNotFollowedAgain) {
  LogitsParams params = GrammarOf("a+b");
  FollowGrammar({0}, params);
  params.bad_words = {{3, 0}};
  LogitsProcessor processor(params, {4});
  processor.Begin({7, 3}, 1, 10);  // c, which is not of the grammar, counts for other rules alone
  EXPECT_EQ(Kept(processor), (std::vector<TokenId>{1, 2}));
  ASSERT_TRUE(processor.Add(2).ok());
  EXPECT_TRUE(processor.is_complete());
  EXPECT_EQ(Kept(processor), std::vector<TokenId>{4});
}

TEST(LogitsProcessorTest, APlaceReachedThatNeedsMoreThanThePoolHasIsRefused) {
  std::string pattern = "a+";
  for (int i = 0; i < 200; ++i) absl::StrAppend(&pattern, "|(a|b){0,300}c", i);
  LogitsParams params = GrammarOf(pattern, 1000, std::make_shared<structured::Automaton::Pool>(0));
  FollowGrammar({0, 0}, params);
  EXPECT_EQ(params.reached_status.code(), absl::StatusCode::kResourceExhausted);
  LogitsProcessor processor(params, {4});
  processor.Begin({7, 0, 0}, 1, 10);
  std::vector<float> logits(40, 1.0F);
  EXPECT_TRUE(processor.Prepare({}, &work_left));
  EXPECT_EQ(processor.Apply(absl::MakeSpan(logits)), params.reached_status);
  // The next one finds what it takes.
  EXPECT_TRUE(params.grammar->CheckPlaces().ok());
}

TEST(LogitsProcessorTest, OnlyTokensOfTheGrammarAreLeftAndItsEndWhereItIsComplete) {
  LogitsProcessor processor(GrammarOf("ab?c?"), {4, 1000});
  processor.Begin({{3, 3}}, 2, 10);
  EXPECT_THAT(Kept(processor), ElementsAre(0, 2));
  EXPECT_TRUE(processor.Add(0).ok());
  EXPECT_THAT(Kept(processor), ElementsAre(1, 3, 4));
  EXPECT_TRUE(processor.Add(1).ok());
  EXPECT_THAT(Kept(processor), ElementsAre(3, 4));
  EXPECT_FALSE(processor.is_complete());
  EXPECT_TRUE(processor.Add(3).ok());
  EXPECT_TRUE(processor.is_complete());
  EXPECT_THAT(Kept(processor), ElementsAre(4));
}

TEST(LogitsProcessorTest, ARowBehindDraftsHasTheGrammarBehindThem) {
  LogitsProcessor processor(GrammarOf("a(b(c)?)?"), {4});
  processor.Begin({{3}}, 1, 10);
  EXPECT_EQ(processor.NumAllowed({}, &work_left), 0);
  EXPECT_EQ(processor.NumAllowed({0, 1, 3}, &work_left), 3);
  EXPECT_EQ(processor.NumAllowed({2, 3, 3}, &work_left), 2);
  EXPECT_EQ(processor.NumAllowed({0, 4, 1}, &work_left), 2);  // nothing behind the end
  EXPECT_EQ(processor.NumAllowed({1, 0}, &work_left), 0);
  EXPECT_EQ(processor.NumAllowed({0, -1}, &work_left), 1);
  EXPECT_THAT(Kept(processor, {0}), ElementsAre(1, 4));
  EXPECT_THAT(Kept(processor, {0, 1}), ElementsAre(3, 4));
  EXPECT_THAT(Kept(processor), ElementsAre(0, 2));  // and nothing was added
  EXPECT_TRUE(processor.Add(0).ok());
  EXPECT_EQ(processor.NumAllowed({0}, &work_left), 0);
  EXPECT_THAT(Kept(processor, {1, 3}), ElementsAre(4));
  EXPECT_EQ(LogitsProcessor(LogitsParams()).NumAllowed({7, 7}, &work_left), 2);
}

TEST(LogitsProcessorTest, AResumedAnswerGoesOnInItsGrammar) {
  LogitsParams params = GrammarOf("(ab)*c");
  FollowGrammar({0, 1, 2}, params);  // "abab"
  LogitsProcessor processor(params, {4});
  processor.Begin({{3, 0, 1, 2}}, 1, 10);
  EXPECT_THAT(Kept(processor), ElementsAre(0, 2, 3));
}

TEST(LogitsProcessorTest, TokensThatAreNotOfTheGrammarFailFromThenOn) {
  LogitsParams params = GrammarOf("(ab)*c");
  FollowGrammar({1}, params);
  LogitsProcessor processor(params, {4});
  processor.Begin({{3, 1}}, 1, 10);
  std::vector<float> logits(40, 1.0F);
  const absl::Status failed = processor.Apply(absl::MakeSpan(logits));
  EXPECT_EQ(failed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(failed), reason::kStructuredOutput);
  EXPECT_EQ(processor.Add(0), failed);
  EXPECT_FALSE(processor.is_complete());
}

TEST(LogitsProcessorTest, AGrammarThatNoTokenGoesOnWithFails) {
  LogitsProcessor processor(GrammarOf("aX"), {4});
  processor.Begin({{3}}, 1, 10);
  EXPECT_THAT(Kept(processor), ElementsAre(0));
  EXPECT_TRUE(processor.Add(0).ok());
  std::vector<float> logits(40, 1.0F);
  EXPECT_TRUE(processor.Prepare({}, &work_left));
  EXPECT_EQ(ReasonOf(processor.Apply(absl::MakeSpan(logits))), reason::kStructuredOutput);
}

TEST(LogitsProcessorTest, EmittedTokensAreFollowedUpToAnErrorTheEndOfTheGrammarOrTooMuchWork) {
  LogitsParams params = GrammarOf("ab?");
  FollowGrammar({0, 1, 3}, params);
  EXPECT_EQ(params.complete_after, 2);
  EXPECT_TRUE(params.reached_status.ok());
  // About a hundred places at once: each token is little work, and all of them are too much.
  params = GrammarOf("((a{1,10}b?){1,10})+");
  const std::vector<TokenId> emitted(100'000, 0);
  FollowGrammar(absl::MakeConstSpan(emitted).first(1000), params);
  EXPECT_TRUE(params.reached_status.ok()) << params.reached_status;
  FollowGrammar(emitted, params);
  EXPECT_EQ(ReasonOf(params.reached_status), reason::kStructuredOutput);
  EXPECT_EQ(params.grammar->total_work(), 0);  // others wait for none of it
}

TEST(LogitsProcessorTest, PenaltiesAndBiasesComeBehindTheGrammar) {
  LogitsParams params = GrammarOf("[ab]+");
  params.bias = {{3, 50.0F}, {1, 2.0F}};
  LogitsProcessor processor(params, {4});
  processor.Begin({{3}}, 1, 10);
  std::vector<float> logits(40, 1.0F);
  EXPECT_TRUE(processor.Prepare({}, &work_left));
  EXPECT_TRUE(processor.Apply(absl::MakeSpan(logits)).ok());
  EXPECT_EQ(logits[0], 1.0F);
  EXPECT_EQ(logits[1], 3.0F);
  EXPECT_EQ(logits[3], -kInfinity);  // c is not of the grammar, however large its bias
}

}  // namespace
}  // namespace bulkhead
