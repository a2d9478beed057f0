// Oniguruma's meaning of patterns. The expected spans are Oniguruma's own.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "runtime/tokenizer/oniguruma.h"
#include "runtime/tokenizer/regex.h"

namespace bulkhead {
namespace {

// The text with each match in <>.
std::string Marked(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::Compile(pattern);
  if (!regex.ok()) return std::string(regex.status().message());
  RegexBudget budget;
  std::vector<Span> spans;
  const absl::Status status = (*regex)->FindAll(text, budget, &spans);
  if (!status.ok()) return std::string(status.message());
  std::string marked;
  for (const Span& span : spans) {
    const std::string part = text.substr(span.begin, span.end - span.begin);
    absl::StrAppend(&marked, span.is_match ? "<" : "", part, span.is_match ? ">" : "");
  }
  return marked;
}

TEST(Oniguruma, QuantifiersOfIntervalsAreNeitherPossessiveNorLazy) {
  EXPECT_EQ(Marked("a{2}+b", "aaaab"), "<aaaab>");
  EXPECT_EQ(Marked("a{2}?b", "aabab"), "<aab>a<b>");
  EXPECT_EQ(Marked("a{1,2}?", "aaa"), "<a><a><a>");
  EXPECT_EQ(Marked("a{,2}b", "aaab"), "a<aab>");
  EXPECT_EQ(Marked("x{,}", "xx{,}"), "x<x{,}>");
  EXPECT_EQ(Marked("a{2,1}", "aaa"), "<aa><a>");
  EXPECT_EQ(Marked("a++a|b", "aaab"), "aaa<b>");
  EXPECT_EQ(Marked("a{1,2}{2}", "aaaa"), "<aaaa>");
}

TEST(Oniguruma, EscapesMeanWhatTheyMeanThere) {
  EXPECT_EQ(Marked("\\h+", "xfaz \t"), "x<fa>z \t");
  EXPECT_EQ(Marked("a\\v", "a\x0B"), "<a\x0B>");
  EXPECT_EQ(Marked("\\s", "\xE1\xA0\x8E\xC2\x85"), "\xE1\xA0\x8E<\xC2\x85>");
  EXPECT_EQ(Marked("\\w+",
                   "a\xCC\x81"
                   "b_\xE2\x80\xBF-\xC2\xB2"),
            "<a\xCC\x81"
            "b_\xE2\x80\xBF>-<\xC2\xB2>");
  EXPECT_EQ(Marked("[\\w]", "\xC2\xB2"), "\xC2\xB2");
  EXPECT_EQ(Marked("\\bb",
                   "a\xCC\x81"
                   "b b"),
            "a\xCC\x81"
            "b <b>");
  EXPECT_EQ(Marked("\\u4e00|\\x{4e01}|\\x41",
                   "\xE4\xB8\x80\xE4\xB8\x81"
                   "A"),
            "<\xE4\xB8\x80><\xE4\xB8\x81><A>");
  EXPECT_EQ(Marked("a\\Z", "a\n"), "<a>\n");
  EXPECT_EQ(Marked("a\\z", "a\n"), "a\n");
  EXPECT_EQ(Marked("\\O+", "a\nb"), "<a\nb>");
  EXPECT_EQ(Marked("\\N+|.", "a\nb"), "<a>\n<b>");
}

TEST(Oniguruma, AnchorsAreOfLinesAndMIsDotall) {
  EXPECT_EQ(Marked("^a", "a\na\nba"), "<a>\n<a>\nba");
  EXPECT_EQ(Marked("a$", "ba\nab"), "b<a>\nab");
  EXPECT_EQ(Marked("(?m:a.b)", "a\nb"), "<a\nb>");
  EXPECT_EQ(Marked("a.b", "a\nb"), "a\nb");
}

TEST(Oniguruma, AnOptionReachesOverBars) {
  EXPECT_EQ(Marked("a(?i)b|c", "aBaC C"), "<aB><aC> C");
  EXPECT_EQ(Marked("(?:(?i)x|y)Z", "YZ yz"), "<YZ> yz");
  EXPECT_EQ(Marked("(?i:k)", "\xE2\x84\xAA"), "<\xE2\x84\xAA>");
}

TEST(Oniguruma, ClassesNestAndIntersect) {
  EXPECT_EQ(Marked("[a-z&&[^aeiou]]+", "hello"), "<h>e<ll>o");
  EXPECT_EQ(Marked("[^a-c&&b-d]", "abcd"), "<a>bc<d>");
  EXPECT_EQ(Marked("[a[0-9]]+", "a1b"), "<a1>b");
  EXPECT_EQ(Marked("[^[a-c]]", "abcd"), "abc<d>");
  EXPECT_EQ(Marked("[]a]+", "a]b"), "<a]>b");
  EXPECT_EQ(Marked("[a-c-e]", "-d"), "<->d");
  EXPECT_EQ(Marked("[^\\W_]+", "a_b"), "<a>_<b>");
  EXPECT_EQ(Marked("[[:punct:]]+", "$+a!"), "<$+>a<!>");
}

TEST(Oniguruma, ScriptsAreScriptsNotTheirExtensions) {
  EXPECT_EQ(Marked("\\p{Han}+", "\xE3\x80\x85\xE3\x80\x81"), "<\xE3\x80\x85>\xE3\x80\x81");
  EXPECT_EQ(Marked("\\p{Letter}+|\\p{^L}", "ab1"), "<ab><1>");
}

TEST(Oniguruma, SymbolsAndPunctuationAreThoseOfUnicode16) {
  const std::string heart = "\xF0\x9F\xA9\xB7", sign = "\xE1\xAD\x8E";  // U+1FA77, U+1B4E
  EXPECT_EQ(Marked("[\\p{P}\\p{S}]+", absl::StrCat("a", heart, "!", sign, "b")),
            absl::StrCat("a<", heart, "!", sign, ">b"));
  EXPECT_EQ(Marked("\\p{So}|\\p{Punctuation}", heart + sign),
            absl::StrCat("<", heart, "><", sign, ">"));
  EXPECT_EQ(Marked("\\P{S}+", absl::StrCat("a", heart, "b")), absl::StrCat("<a>", heart, "<b>"));
  EXPECT_EQ(Marked("[^\\p{S}\\s]+", absl::StrCat("a ", heart)), absl::StrCat("<a> ", heart));
  EXPECT_EQ(Marked("[a\\P{P}]+", absl::StrCat("ab", sign)), absl::StrCat("<ab>", sign));
  EXPECT_EQ(Marked("[[:punct:]]+", heart + sign), absl::StrCat("<", heart, sign, ">"));
}

TEST(Oniguruma, AnEmptyMatchRightAfterAMatchDoesNotCount) {
  EXPECT_EQ(Marked("x*", "axb"), "<>a<x>b<>");
  EXPECT_EQ(Marked("", "ab"), "<>a<>b<>");
}

TEST(Oniguruma, ALookBehindSeesWhatWasMatchedBefore) {
  EXPECT_EQ(Marked("a|(?<=a)b", "abb"), "<a><b>b");
}

TEST(Oniguruma, WhatHasNoTranslationIsRefused) {
  for (const char* pattern :
       {"\\X", "\\G", "\\y", "\\k<n>", "\\g<n>", "\\101", "\\0", "\\x80", "\\x", "(?~a)", "(?x:a )",
        "(*FAIL)", "(?W:a)", "\\p{Nothing}", "\\p{Xan}", "[a&&]", "(?i:[\\p{Lu}])", "\\12"}) {
    EXPECT_EQ(TranslateOniguruma(pattern).status().code(), absl::StatusCode::kUnimplemented)
        << pattern;
  }
  for (const char* pattern :
       {"*a", "a|*", "(a", "a)", "[a", "[]", "\\", "\\p{L", "[b-a]", "(?:a"}) {
    EXPECT_EQ(Regex::Compile(pattern).status().code(), absl::StatusCode::kInvalidArgument)
        << pattern;
  }
  EXPECT_FALSE(Regex::Compile(std::string(1000, '(')).ok());
  EXPECT_FALSE(Regex::Compile(std::string(1000, '[')).ok());
  EXPECT_FALSE(Regex::Compile(std::string(100'000, 'a')).ok());
}

}  // namespace
}  // namespace bulkhead
