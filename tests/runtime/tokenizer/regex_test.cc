// How matches follow one another.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
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

TEST(RegexTest, AnEmptyMatchRightAfterAMatchDoesNotCount) {
  EXPECT_EQ(Marked("x*", "axb"), "<>a<x>b<>");
  EXPECT_EQ(Marked("", "ab"), "<>a<>b<>");
}

TEST(RegexTest, ALookBehindSeesWhatWasMatchedBefore) {
  EXPECT_EQ(Marked("a|(?<=a)b", "abb"), "<a><b>b");
}

TEST(RegexTest, FarMatchesAreFoundWhereTheyAre) {
  const std::string far(1000, '-'), wide = "\xE4\xB8\x80";
  EXPECT_EQ(Marked("a", far + "a" + far), far + "<a>" + far);
  EXPECT_EQ(Marked("(?<=-" + wide + ")a|$", far + wide + "a"), far + wide + "<a>");
}

TEST(RegexTest, APatternThatIsNoneIsRefused) {
  EXPECT_EQ(Regex::Compile("\\Ga").status().code(), absl::StatusCode::kUnimplemented);
  for (const char* pattern :
       {"*a", "(a", "a)", "[a", "[]", "\\", "\\p{Nothing}", "[b-a]", "(*X)"}) {
    EXPECT_EQ(Regex::Compile(pattern).status().code(), absl::StatusCode::kInvalidArgument)
        << pattern;
  }
}

}  // namespace
}  // namespace bulkhead
