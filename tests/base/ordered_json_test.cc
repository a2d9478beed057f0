#include "base/ordered_json.h"

#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

TEST(OrderedJson, KeepsTheOrderOfKeysAtEveryDepth) {
  const std::string text = R"({"z":1,"a":{"y":[{"b":1,"a":2}],"x":null},"m":"t"})";
  EXPECT_EQ(ParseOrderedJsonObject(text, "request")->dump(), text);
}

TEST(OrderedJson, RefusesAKeyTwiceInOneObjectAlone) {
  EXPECT_TRUE(ParseOrderedJsonObject(R"({"a":{"a":1},"b":{"a":1}})", "request").ok());
  const auto twice = ParseOrderedJsonObject(R"({"b":{"a":1,"c":2,"a":3}})", "request");
  EXPECT_NE(twice.status().message().find("'a' twice"), std::string::npos) << twice.status();
}

TEST(OrderedJson, TakesTheLastOfAKeyThatIsThereTwiceWhereAsked) {
  const auto read = ParseOrderedJsonObject(R"({"a":{"x":1},"b":{"c":1,"c":[2]},"a":3,"d":{"a":4}})",
                                           "request", {}, /*last_key_counts=*/true);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->dump(), R"({"b":{"c":[2]},"a":3,"d":{"a":4}})");
}

TEST(OrderedJson, ReadsAnObjectOfManyKeysInTheTimeOfItsText) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) absl::StrAppend(&text, i > 0 ? "," : "", "\"k", i, "\":", i);
  EXPECT_EQ(ParseOrderedJsonObject(text + "}", "request")->size(), 200'000u);
}

TEST(OrderedJson, IsBoundedInDepth) {
  const std::string deep = "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_FALSE(ParseOrderedJsonObject(deep, "request").ok());
}

}  // namespace
}  // namespace bulkhead
