// Whether JSON that comes in pieces is whole, with the JSON library as the oracle.
#include "runtime/chat/call_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

bool IsWhole(const std::string& text, size_t bytes) {
  JsonChecker checker;
  for (size_t at = 0; at < text.size(); at += bytes) checker.Add(text.substr(at, bytes));
  return checker.is_whole();
}

TEST(JsonCheckerTest, AgreesWithTheLibraryOnTextsWithRandomChanges) {
  const std::vector<std::string> texts = {
      R"({"a": [1, -2.5e+3, 0], "b": {"c": "x\n\u00e9\"", "d": {}}, "e": [[], [true, null]]})",
      R"( [ "a" , false, {"k" : 0.5E-7} ] )",
      "{}",
      "12",
      "\"text\"",
      "{\"a\":{\"a\":{\"a\":[]}}}"};
  const std::vector<std::string> pieces = {"{",  "}",  "[",    "]",    "\"",    "\\", ",",    ":",
                                           " ",  "\n", "1",    "0",    "-",     "+",  ".",    "e",
                                           "E1", "t",  "true", "null", "\\u12", "f",  "\x01", "'"};
  uint32_t state = 1;
  const auto random = [&state](size_t count) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % count;
  };
  int num_whole = 0;
  for (int i = 0; i < 60'000; ++i) {
    std::string text = texts[random(texts.size())];
    for (size_t count = random(3); count > 0; --count) {
      const size_t at = random(text.size() + 1);
      if (random(2) == 0) text.erase(at, random(4));
      text.insert(std::min(at, text.size()), pieces[random(pieces.size())]);
    }
    const bool expected = nlohmann::json::accept(text);
    num_whole += expected ? 1 : 0;
    ASSERT_EQ(IsWhole(text, 1 + random(text.size() + 1)), expected) << text;
    ASSERT_EQ(IsWhole(text, 1), expected) << text;
  }
  EXPECT_GT(num_whole, 20'000);
  EXPECT_LT(num_whole, 40'000);
}

TEST(JsonCheckerTest, NothingIsNotWhole) {
  EXPECT_FALSE(JsonChecker().is_whole());
  EXPECT_FALSE(IsWhole(" ", 1));
}

TEST(JsonCheckerTest, DeepAndLongTextsTakeNoTimeThatGrowsWithTheirSquare) {
  const size_t size = 1 << 20;
  EXPECT_TRUE(IsWhole(std::string(size, '[') + std::string(size, ']'), 7));
  EXPECT_FALSE(IsWhole(std::string(size, '1'), 7)) << "longer than any number";
}

}  // namespace
}  // namespace bulkhead
