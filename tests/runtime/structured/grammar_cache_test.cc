#include "runtime/structured/grammar_cache.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
