#include "runtime/structured/schema_keywords.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/runtime/structured/grammars.h"
#include "tests/runtime/structured/whole_answer.h"

namespace bulkhead::structured {
namespace {

bool Holds(const std::string& schema, const std::string& text) {
  return IsWholeAnswer(JsonSchemaGrammar(schema), text);
}

TEST(SchemaKeywordsTest, KeywordsThatForbidNothingHaveNoEffect) {
  for (const char* keyword :
       {R"("uniqueItems":false)", R"("minProperties":0)", R"("nullable":false)",
        R"("dependentRequired":{})", R"("minContains":0)", R"("x-order":{"a":1})",
        R"("$anchor":"a")", R"("$vocabulary":{})", R"("contentMediaType":"text/html")",
        R"("contentEncoding":"base64")", R"("propertyNames":{"type":"string"})",
        R"("patternProperties":{})"}) {
    EXPECT_TRUE(Holds(std::string("{\"enum\":[5],") + keyword + "}", "5")) << keyword;
    EXPECT_TRUE(Holds(std::string("{") + keyword + "}", "[1]")) << keyword;
  }
}

TEST(SchemaKeywordsTest, FormatsOfAMeaningLeaveAStringAsItIs) {
  for (const char* format : {"password", "binary", "path", "byte", "int64"}) {
    EXPECT_TRUE(Holds(std::string(R"({"type":"string","format":")") + format + "\"}", R"("a b")"));
  }
}

TEST(SchemaKeywordsTest, BesideAPatternAFormatSaysNothing) {
  const std::string schema = R"({"type":"string","format":"email","pattern":"^a+$"})";
  EXPECT_TRUE(Holds(schema, R"("aa")"));
  EXPECT_FALSE(Holds(schema, R"("a@b.de")"));
}

TEST(SchemaKeywordsTest, FormatsAreOfTheirForm) {
  struct Case {
    const char* format;
    std::vector<const char*> good, bad;
  };
  const Case cases[] = {
      {"email",
       {"a@b.de", "a.b+c@x-y.example.com"},
       {"a", "a@b", ".a@b.de", "a@-b.de", "a b@c.de"}},
      {"hostname", {"localhost", "a-b.example.com"}, {"", "-a", "a-", "a..b", "a_b"}},
      {"ipv6",
       {"::", "::1", "2001:db8::ff", "1:2:3:4:5:6:7:8", "1::"},
       {"", ":", "1:2", "1::2::3", "g::"}},
      {"duration",
       {"P3D", "PT12H30M5S", "P1Y2M3DT4H", "P2W"},
       {"", "P", "PT", "P1DT", "1D", "P1D2Y"}},
      {"uri",
       {"https://a.de/b?c=d#e", "mailto:a@b.de", "a:%20"},
       {"", "a", "://a", "a:b c", "a:%2", "a:b#c#d"}}};
  for (const auto& [format, good, bad] : cases) {
    const std::string schema =
        std::string(R"({"type":"string","minLength":1,"format":")") + format + "\"}";
    for (const char* text : good)
      EXPECT_TRUE(Holds(schema, std::string("\"") + text + "\"")) << text;
    for (const char* text : bad)
      EXPECT_FALSE(Holds(schema, std::string("\"") + text + "\"")) << text;
  }
}

TEST(SchemaKeywordsTest, AConstBesideAnEnumIsThatOneOfThem) {
  const std::string schema = R"({"const":"b","enum":["a","b"],"type":"string"})";
  EXPECT_TRUE(Holds(schema, R"("b")"));
  EXPECT_FALSE(Holds(schema, R"("a")"));
  EXPECT_FALSE(JsonSchemaGrammar(R"({"const":"c","enum":["a","b"]})").ok());
}

TEST(SchemaKeywordsTest, ATypeBesideAReferenceToItSaysNothing) {
  EXPECT_TRUE(Holds(R"({"$ref":"#/$defs/a","type":"null","$defs":{"a":{"type":"null"}}})", "null"));
}

TEST(SchemaKeywordsTest, OfTwoBoundsOfASideTheNarrowerCounts) {
  const std::string loose =
      R"({"type":"integer","minimum":1,"exclusiveMinimum":0,"maximum":3,"exclusiveMaximum":9})";
  EXPECT_FALSE(Holds(loose, "0"));
  EXPECT_TRUE(Holds(loose, "1"));
  EXPECT_TRUE(Holds(loose, "3"));
  EXPECT_FALSE(Holds(loose, "4"));
  const std::string strict =
      R"({"type":"integer","minimum":1,"exclusiveMinimum":1,"maximum":3,"exclusiveMaximum":3})";
  EXPECT_FALSE(Holds(strict, "1"));
  EXPECT_TRUE(Holds(strict, "2"));
  EXPECT_FALSE(Holds(strict, "3"));
}

TEST(SchemaKeywordsTest, NumbersHaveAsManyDigitsAsTheirBounds) {
  const std::string id = R"({"type":"integer","minimum":0,"maximum":9223372036854775807})";
  EXPECT_TRUE(Holds(id, "9223372036854775807"));
  EXPECT_FALSE(Holds(id, "9223372036854775808"));
  EXPECT_TRUE(Holds(R"({"type":"integer","minimum":1000000000000000000})", "1000000000000000001"));
  EXPECT_FALSE(Holds(R"({"type":"integer"})", "1000000000000000000"));
  EXPECT_TRUE(Holds(R"({"type":"number","minimum":1e20})", "100000000000000000000"));
  EXPECT_TRUE(Holds(R"({"type":"number","maximum":-1e20})", "-100000000000000000000"));
  const std::string tiny = R"({"type":"number","minimum":1e-20,"maximum":2e-20})";
  EXPECT_TRUE(Holds(tiny, "0.000000000000000000015"));
  EXPECT_FALSE(Holds(tiny, "0.000000000000000000025"));
  EXPECT_FALSE(Holds(R"({"type":"number","maximum":1})", "0.0000000000000001"));
}

TEST(SchemaKeywordsTest, ACountMayBeWrittenWithAPoint) {
  EXPECT_FALSE(Holds(R"({"type":"string","minLength":2.0})", R"("a")"));
  EXPECT_TRUE(Holds(R"({"type":"string","minLength":2.0})", R"("ab")"));
}

}  // namespace
}  // namespace bulkhead::structured
