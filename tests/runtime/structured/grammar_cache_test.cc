#include "runtime/structured/grammar_cache.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/structured/matcher.h"

namespace bulkhead::structured {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

GrammarSpec Choice(const std::string& text) {
  return {.form = GrammarSpec::Form::kChoice, .texts = {text, "other"}};
}

// What one grammar is charged for 320 ids.
size_t ChargeOfOne() {
  GrammarCache cache(Bytes, 320, size_t{8} << 20);
  EXPECT_TRUE(cache.Get(Choice("text0000")).ok());
  const size_t one = cache.charged_bytes();
  EXPECT_TRUE(cache.Get(Choice("text0001")).ok());
  return cache.charged_bytes() - one;
}

TEST(GrammarCacheTest, EqualGrammarsShareAnAutomatonAndOthersDoNot) {
  int built = 0;
  const auto count = [&] {
    ++built;
    return Bytes();
  };
  GrammarCache cache(count, 320, size_t{8} << 20);
  const auto first = cache.Get(Choice("one"));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*cache.Get(Choice("one")), *first);
  GrammarSpec wrapped = Choice("one");
  wrapped.prefix = "<";
  const auto other = cache.Get(wrapped);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(*other, *first);
  GrammarSpec behind = Choice("one");
  behind.suffix = "<";
  EXPECT_NE(*cache.Get(behind), *other);
  EXPECT_EQ(built, 1);
  EXPECT_EQ(cache.num_grammars(), 3);
}

TEST(GrammarCacheTest, GrammarsOfNoRequestMakeRoomAndThoseInFlightDoNot) {
  const size_t one = ChargeOfOne();
  GrammarCache cache(Bytes, 320, size_t{3} << 19);
  const int fit = static_cast<int>(((size_t{3} << 19) - 16384) / one);
  ASSERT_GE(fit, 3);
  for (int i = 0; i < 4 * fit; ++i) {
    ASSERT_TRUE(cache.Get(Choice(absl::StrCat("text", 1000 + i))).ok());
    EXPECT_LE(cache.charged_bytes(), size_t{3} << 19);
  }
  std::vector<std::shared_ptr<Automaton>> held;
  absl::Status refused;
  while (held.size() < 100) {
    auto got = cache.Get(Choice(absl::StrCat("held", 1000 + held.size())));
    if (!got.ok()) {
      refused = got.status();
      break;
    }
    held.push_back(*std::move(got));
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("try again later"));
  EXPECT_TRUE(cache.Get(Choice("held1000")).ok());  // it is there
  held.pop_back();
  EXPECT_TRUE(cache.Get(Choice("another")).ok());
}

TEST(GrammarCacheTest, WhatThereIsNoRoomForIsCompiledOnceAndDrivesNoOtherOut) {
  int compiled = 0;
  GrammarCache cache(Bytes, 320, size_t{8} << 20, [&](const GrammarSpec& spec) {
    ++compiled;
    return Grammar::Of(spec);
  });
  ASSERT_TRUE(cache.Get(Choice("idle")).ok());
  std::string large;
  while (large.size() < 10'000) absl::StrAppend(&large, "some text ");
  std::vector<std::shared_ptr<Automaton>> held;
  absl::Status refused;
  while (refused.ok() && held.size() < 100) {
    auto got = cache.Get(Choice(absl::StrCat(large, held.size())));
    if (got.ok()) held.push_back(*std::move(got));
    refused = got.status();
  }
  ASSERT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  ASSERT_FALSE(held.empty());
  compiled = 0;
  const GrammarSpec waits = Choice(absl::StrCat(large, held.size()));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cache.Get(waits).status(), refused);
  EXPECT_EQ(compiled, 0);
  EXPECT_NE(cache.Find(Choice("idle")), nullptr);
  held.pop_back();
  EXPECT_TRUE(cache.Get(waits).ok());
}

TEST(GrammarCacheTest, AnAutomatonKeepsLessWhereThereAreMany) {
  GrammarCache cache(Bytes, 320, size_t{4} << 20);
  const auto alone = cache.Get({.form = GrammarSpec::Form::kJsonObject});
  ASSERT_TRUE(alone.ok());
  std::vector<std::shared_ptr<Automaton>> others;
  for (int i = 0; i < 8; ++i) others.push_back(*cache.Get(Choice(absl::StrCat("t", i))));
  // Ever deeper objects, each a new place: what is kept stays below the budget of all.
  Matcher matcher(*alone, {256});
  std::vector<uint32_t> mask(10);
  for (int i = 0; i < 60; ++i) {
    for (const char c : std::string("{\"a\":")) {
      ASSERT_TRUE(matcher.Accept(static_cast<uint8_t>(c)).ok());
      ASSERT_TRUE(matcher.FillMask(absl::MakeSpan(mask)).ok());
      EXPECT_LE((*alone)->bytes() + cache.charged_bytes(), size_t{4} << 20);
    }
  }
}

// Single bytes, and words each of whose beginnings is a state of its own.
std::vector<std::string> Words(int count) {
  std::minstd_rand random(7);
  std::vector<std::string> words(count);
  for (std::string& word : words) {
    for (int i = 0; i < 8; ++i) word += static_cast<char>('a' + random() / 64 % 26);
  }
  return words;
}

constexpr int kNumWords = 1000;
constexpr size_t kWordsBytes = size_t{64} << 20;

std::vector<std::string> BytesAndWords() {
  std::vector<std::string> tokens = Bytes();
  for (std::string& word : Words(kNumWords)) tokens.push_back(std::move(word));
  return tokens;
}

std::vector<uint32_t> MaskOf(Matcher& matcher) {
  std::vector<uint32_t> mask((256 + kNumWords + 31) / 32);
  EXPECT_TRUE(matcher.FillMask(absl::MakeSpan(mask)).ok());
  return mask;
}

TEST(GrammarCacheTest, WhatAnAnswerMayGoOnWithDoesNotDependOnOtherGrammars) {
  const GrammarSpec spec = {.form = GrammarSpec::Form::kChoice, .texts = Words(kNumWords)};
  std::vector<std::vector<uint32_t>> masks;
  for (const bool has_others : {false, true}) {
    GrammarCache cache(BytesAndWords, 256 + kNumWords, kWordsBytes);
    std::vector<std::shared_ptr<Automaton>> others;
    for (int i = 0; i < 20 && has_others; ++i) {
      others.push_back(*cache.Get(Choice(absl::StrCat("t", i))));
    }
    const auto words = cache.Get(spec);
    ASSERT_TRUE(words.ok()) << words.status();
    Matcher matcher(*words, {});
    masks.push_back(MaskOf(matcher));
    EXPECT_LE((*words)->bytes() + cache.charged_bytes(), kWordsBytes);
    EXPECT_LE((*words)->bytes(), kWordsBytes / (has_others ? 20 : 2));
  }
  EXPECT_EQ(masks[0], masks[1]);
  EXPECT_EQ(masks[0].back() >> 7, 1) << "the last word";
}

TEST(GrammarCacheTest, AnAnswerGoesOnAfterOthersHaveCome) {
  const std::string any = absl::StrJoin(Words(kNumWords), "|");
  const GrammarSpec spec = {.form = GrammarSpec::Form::kRegex,
                            .texts = {absl::StrCat("((", any, ");)+")}};
  GrammarCache cache(BytesAndWords, 256 + kNumWords, kWordsBytes);
  const auto words = cache.Get(spec);
  ASSERT_TRUE(words.ok()) << words.status();
  Matcher matcher(*words, {});
  const std::vector<uint32_t> mask = MaskOf(matcher);
  std::vector<std::shared_ptr<Automaton>> others;
  for (int i = 0; i < 20; ++i) {
    others.push_back(*cache.Get(Choice(absl::StrCat("t", i))));
    EXPECT_LE((*words)->bytes(), kWordsBytes / 2 / (i + 1)) << "what it kept is dropped at once";
  }
  ASSERT_TRUE(matcher.Accept(256).ok());
  ASSERT_TRUE(matcher.Accept(';').ok());
  EXPECT_EQ(MaskOf(matcher), mask);
}

TEST(GrammarCacheTest, GrammarsWithoutRequestsTakeNoShareAndKeepWhatThereIsRoomFor) {
  GrammarCache cache(BytesAndWords, 256 + kNumWords, kWordsBytes);
  const auto regex = [](int i) {
    return GrammarSpec{.form = GrammarSpec::Form::kRegex,
                       .texts = {absl::StrCat(i, "|", absl::StrJoin(Words(kNumWords), "|"))}};
  };
  std::vector<std::weak_ptr<Automaton>> idle;
  size_t alone = 0;
  for (int i = 0; i < 20; ++i) {
    const auto words = cache.Get(regex(i));
    ASSERT_TRUE(words.ok()) << words.status();
    Matcher matcher(*words, {});
    MaskOf(matcher);
    if (i == 0) alone = (*words)->bytes();
    EXPECT_GE((*words)->bytes(), alone / 2) << i;
    idle.push_back(*words);
    size_t kept = 0;
    for (const auto& automaton : idle) {
      kept += automaton.lock()->bytes();
    }
    EXPECT_LE(kept + cache.charged_bytes(), kWordsBytes);
  }
  EXPECT_GT(idle[18].lock()->bytes(), alone / 2);
  EXPECT_LT(idle[0].lock()->bytes(), alone / 2);
}

TEST(GrammarCacheTest, RefusalsAreKeptAndMakeRoom) {
  GrammarCache cache(Bytes, 320, size_t{1} << 19);
  const auto regex = [](int i) {
    return GrammarSpec{.form = GrammarSpec::Form::kRegex,
                       .texts = {absl::StrCat("(?=a)", i, std::string(10'000, 'b'))}};
  };
  const absl::Status refused = cache.Get(regex(0)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(cache.num_grammars(), 1);
  EXPECT_EQ(cache.Get(regex(0)).status(), refused);
  EXPECT_EQ(cache.num_grammars(), 1);
  for (int i = 1; i < 100; ++i) {
    EXPECT_EQ(cache.Get(regex(i)).status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_LE(cache.charged_bytes(), size_t{1} << 19);
  }
  EXPECT_TRUE(cache.Get(Choice("a")).ok());
}

TEST(GrammarCacheTest, FewRefusalsAreKeptAndNoneOfALongText) {
  GrammarCache cache(Bytes, 320, size_t{64} << 20);
  const auto regex = [](int i, size_t bytes) {
    return GrammarSpec{.form = GrammarSpec::Form::kRegex,
                       .texts = {absl::StrCat("(?=a)", i, std::string(bytes, 'b'))}};
  };
  EXPECT_FALSE(cache.Get(regex(0, 200'000)).ok());
  EXPECT_EQ(cache.num_grammars(), 0);
  ASSERT_TRUE(cache.Get(Choice("a")).ok());
  const size_t before = cache.charged_bytes();
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(cache.Get(regex(i, 60'000)).ok());
    EXPECT_FALSE(cache.Get(regex(0, 60'000)).ok());  // used, so kept
  }
  EXPECT_EQ(cache.num_grammars(), 65);
  EXPECT_GE(cache.charged_bytes() - before, 64 * 120'000);
  EXPECT_LE(cache.charged_bytes() - before, 64 * 121'000);
}

// At most, while an answer goes ever deeper.
size_t KeptBytes(GrammarCache& cache) {
  const auto automaton = cache.Get({.form = GrammarSpec::Form::kJsonObject});
  EXPECT_TRUE(automaton.ok());
  Matcher matcher(*automaton, {256});
  std::vector<uint32_t> mask(10);
  size_t most = 0;
  for (int i = 0; i < 60; ++i) {
    for (const char c : std::string("{\"a\":")) {
      EXPECT_TRUE(matcher.Accept(static_cast<uint8_t>(c)).ok());
      EXPECT_TRUE(matcher.FillMask(absl::MakeSpan(mask)).ok());
      most = std::max(most, (*automaton)->bytes());
    }
  }
  return most;
}

TEST(GrammarCacheTest, RefusalsTakeNoShareOfAutomata) {
  GrammarCache alone(Bytes, 320, size_t{1} << 20);
  GrammarCache beside(Bytes, 320, size_t{1} << 20);
  EXPECT_TRUE(beside.Get({.form = GrammarSpec::Form::kJsonObject}).ok());
  for (int i = 0; i < 64; ++i) {
    EXPECT_FALSE(
        beside.Get({.form = GrammarSpec::Form::kRegex, .texts = {absl::StrCat("(?=", i)}}).ok());
  }
  EXPECT_GE(KeptBytes(beside), KeptBytes(alone) * 4 / 5);
}

TEST(GrammarCacheTest, ErrorsAreTheGrammarsTheTokenizersAndTheBudgets) {
  GrammarCache cache(Bytes, 320, size_t{8} << 20);
  EXPECT_EQ(cache.Get({.form = GrammarSpec::Form::kRegex, .texts = {"(?=a)"}}).status().code(),
            absl::StatusCode::kUnimplemented);
  GrammarCache none([] { return absl::UnimplementedError("bytes depend on tokens around"); }, 320,
                    size_t{8} << 20);
  EXPECT_EQ(none.Get(Choice("a")).status().code(), absl::StatusCode::kUnimplemented);
  GrammarCache small(Bytes, 320, 1 << 10);
  const absl::Status lacks = small.Get(Choice("a")).status();
  EXPECT_EQ(lacks.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(lacks.message(), HasSubstr("host memory"));
}

}  // namespace
}  // namespace bulkhead::structured
