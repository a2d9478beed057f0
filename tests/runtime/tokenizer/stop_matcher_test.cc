#include "runtime/tokenizer/stop_matcher.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <optional>
#include <random>

namespace bulkhead {
namespace {

struct Result {
  std::string text;
  std::optional<std::string> stop;
  bool operator==(const Result&) const = default;
};

Result Feed(const std::vector<std::string>& stop, const std::vector<std::string>& parts,
            bool include = false) {
  StopMatcher matcher(stop);
  Result result;
  for (const std::string& part : parts) {
    if (const std::string* found = matcher.Feed(part, {true, include}, &result.text)) {
      result.stop = *found;
      return result;
    }
  }
  result.text += matcher.TakeHeld();
  return result;
}

TEST(StopMatcher, TheStopStringThatEndsFirstWins) {
  EXPECT_EQ(Feed({"abcd", "bc"}, {"xabcd"}), (Result{"xa", "bc"}));
  EXPECT_EQ(Feed({"bc", "abc"}, {"xabcd"}), (Result{"x", "abc"}));
  EXPECT_EQ(Feed({"d", "x"}, {"abc"}), (Result{"abc", std::nullopt}));
}

TEST(StopMatcher, AStopStringCanBeKept) {
  EXPECT_EQ(Feed({"\n\n"}, {"a\n", "\nb"}, true), (Result{"a\n\n", "\n\n"}));
}

TEST(StopMatcher, WhatMayBecomeAStopStringIsHeldBackAndNothingElse) {
  StopMatcher matcher({"</s>", "END"});
  std::string out;
  EXPECT_EQ(matcher.Feed("ab</", {}, &out), nullptr);
  EXPECT_EQ(out, "ab");
  EXPECT_EQ(matcher.Feed("E", {}, &out), nullptr);
  EXPECT_EQ(out, "ab</");
  EXPECT_EQ(matcher.Feed("x", {}, &out), nullptr);
  EXPECT_EQ(out, "ab</Ex");
  EXPECT_EQ(matcher.TakeHeld(), "");
}

TEST(StopMatcher, AStopStringOfTheTimeBeforeItMayStopIsText) {
  StopMatcher matcher({"ab"});
  std::string out;
  EXPECT_EQ(matcher.Feed("ab", {false, false}, &out), nullptr);
  EXPECT_EQ(matcher.Feed("a", {false, false}, &out), nullptr);
  EXPECT_NE(matcher.Feed("b!", {true, false}, &out), nullptr);
  EXPECT_EQ(out, "ab");
}

TEST(StopMatcher, EmptyStopStringsAreIgnored) {
  EXPECT_EQ(Feed({""}, {"abc"}), (Result{"abc", std::nullopt}));
  EXPECT_EQ(Feed({"", "c"}, {"abc"}), (Result{"ab", "c"}));
}

TEST(StopMatcher, AStopStringThatRepeatsItselfIsFoundAtItsFirstEnd) {
  EXPECT_EQ(Feed({"aabaaa"}, {"aabaab", "aaa!"}), (Result{"aab", "aabaaa"}));
  EXPECT_EQ(Feed({"aaa", "aab"}, {"aa", "caaab"}), (Result{"aac", "aaa"}));
}

TEST(StopMatcher, ItTakesLittleMoreThanItsStopStringsUntilThereIsText) {
  const auto heap_bytes = [] { return mallinfo2().uordblks; };  // 0 with a sanitizer's heap
  constexpr size_t kStops = 16, kStopBytes = 256;
  std::vector<std::string> stop;
  for (size_t i = 0; i < kStops; ++i) stop.emplace_back(kStopBytes, static_cast<char>('a' + i));
  const size_t before = heap_bytes();
  StopMatcher matcher(stop);
  EXPECT_LT(heap_bytes() - before, kStops * (kStopBytes + 128));
  std::string out;
  matcher.Feed("aab", {}, &out);
  EXPECT_LT(heap_bytes() - before, kStops * (5 * kStopBytes + 256));
}

TEST(StopMatcher, HowTheTextIsCutMakesNoDifference) {
  constexpr uint32_t kSeed = 11;
  std::printf("seed %u\n", kSeed);
  std::mt19937 random(kSeed);
  const auto letters = [&](int most) {
    std::string text;
    for (int n = 1 + random() % most; n > 0; --n) text += "ab\n"[random() % 3];
    return text;
  };
  int stopped = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::vector<std::string> stop = {letters(5), letters(4), letters(6)};
    const std::string text = letters(40);
    std::vector<std::string> parts;
    for (size_t at = 0; at < text.size(); at += parts.back().size()) {
      parts.push_back(text.substr(at, 1 + random() % 5));
    }
    const Result whole = Feed(stop, {text});
    ASSERT_EQ(Feed(stop, parts), whole);
    // Brute force: the first end of any stop string, the longest of those.
    Result expected{text, std::nullopt};
    for (size_t end = 1; end <= text.size() && !expected.stop; ++end) {
      for (const std::string& one : stop) {
        if (end < one.size() || text.compare(end - one.size(), one.size(), one) != 0) continue;
        if (!expected.stop || one.size() > expected.stop->size()) {
          expected = {text.substr(0, end - one.size()), one};
        }
      }
    }
    ASSERT_EQ(whole, expected);
    stopped += whole.stop.has_value();
  }
  EXPECT_GT(stopped, 1000);
}

}  // namespace
}  // namespace bulkhead
