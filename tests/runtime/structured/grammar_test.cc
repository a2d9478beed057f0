#include "runtime/structured/grammar.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/structured/grammars.h"
#include "tests/runtime/structured/whole_answer.h"

namespace bulkhead::structured {
namespace {

using ::testing::HasSubstr;

absl::Status Schema(const std::string& text) { return JsonSchemaGrammar(text).status(); }
absl::Status Regex(const std::string& text) { return RegexGrammar(text).status(); }

TEST(GrammarTest, NamesTheKeywordThatIsNotSupportedAndItsPath) {
  const absl::Status status =
      Schema(R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(
      status.message(),
      "JSON schema, #/properties/a: \"uniqueItems\" is not supported; leave it out, and check "
      "it in the answer");
  for (const char* text :
       {R"({"not":{}})", R"({"type":"integer","multipleOf":3})",
        R"({"patternProperties":{"a":{}}})", R"({"type":"object","minProperties":1})",
        R"({"type":"string","format":"iri"})", R"({"allOf":[{},{}]})",
        R"({"anyOf":[{"type":"null"}],"type":"string"})",
        R"({"type":"integer","anyOf":[{"type":"number"}]})",
        R"({"type":"object","anyOf":[{"type":"object"},{"type":"null"}]})",
        R"({"enum":[1],"minimum":0})", R"({"minProperties":1})", R"({"nullable":true})",
        R"({"propertyNames":{"type":"string","maxLength":2}})",
        R"({"type":"string","format":"uri","maxLength":9})",
        R"({"$ref":"#/$defs/a","type":"string","$defs":{"a":{"type":"null"}}})",
        R"({"$ref":"http://example.com/a"})", R"({"type":"string","pattern":"^a","maxLength":3})",
        R"({"minLength":1,"minItems":1})", R"({"type":"array","items":[{}]})"}) {
    EXPECT_EQ(Schema(text).code(), absl::StatusCode::kUnimplemented) << text;
  }
}

TEST(GrammarTest, RefusesSchemasThatAreNotValid) {
  for (const char* text :
       {"", "[]", "{", R"({"type":"text"})", R"({"type":[]})", R"({"enum":1})", R"({"anyOf":[]})",
        R"({"required":[1]})", R"({"properties":{"a":1}})", R"({"type":"string","minLength":-1})",
        R"({"type":"string","maxLength":1e30})", R"({"type":"string","minLength":3,"maxLength":2})",
        R"({"type":"number","minimum":"1"})",
        R"({"type":"number","minimum":1,"exclusiveMinimum":true})",
        R"({"type":"string","minLength":1.5})", R"({"$ref":"#/$defs/a"})", R"({"$ref":1})",
        R"({"type":"string","pattern":"("})"}) {
    EXPECT_EQ(Schema(text).code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(GrammarTest, RefusesSchemasThatAllowNoAnswer) {
  for (const char* text : {R"({"enum":[]})", R"({"type":"integer","minimum":2,"maximum":1})",
                           R"({"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2})",
                           R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
                           R"({"type":"object","properties":{"a":false},"required":["a"]})",
                           R"({"type":"object","required":["a"],"additionalProperties":false})",
                           R"({"type":"integer","const":1.5})"}) {
    EXPECT_EQ(Schema(text).code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(GrammarTest, RefusesARefThatLeadsToItself) {
  const absl::Status status = Schema(R"({"anyOf":[{"type":"string"},{"$ref":"#"}]})");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("leads to itself"));
  EXPECT_TRUE(
      Schema(R"({"anyOf":[{"type":"string"},{"type":"array","items":{"$ref":"#"}}]})").ok());
}

TEST(GrammarTest, ATypeBesideAlternativesThatAllHaveItSaysNothing) {
  EXPECT_TRUE(
      Schema(R"({"type":"object","anyOf":[{"type":"object"},{"type":"object","required":[]}]})")
          .ok());
  EXPECT_TRUE(Schema(R"({"type":["number","null"],"oneOf":[{"type":"integer"}]})").ok());
}

TEST(GrammarTest, ATypeBesideAlternativesIsThatOfThoseWithoutOne) {
  // As vLLM writes the calls of tools.
  EXPECT_TRUE(Schema(R"({"type":"array","minItems":1,"items":{"type":"object","anyOf":[
      {"properties":{"name":{"type":"string","enum":["add"]},"parameters":{"type":"object"}},
       "required":["name","parameters"]}]}})")
                  .ok());
}

TEST(GrammarTest, RefusesWhatIsTooDeepOrTooLarge) {
  std::string schema = R"({"type":"null"})";
  for (int i = 0; i < kMaxDepth - 40; ++i) {
    schema = absl::StrCat(R"({"type":"array","minItems":1,"items":)", schema, "}");
  }
  EXPECT_TRUE(Schema(schema).ok()) << Schema(schema);
  // Levels multiply through $ref, which the text's depth does not show.
  std::string levels = R"({"$ref":"#/$defs/a0","$defs":{)";
  for (int i = 0; i <= kMaxDepth; ++i) {
    absl::StrAppend(&levels, "\"a", i,
                    R"(":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/a)", i + 1, "\"}},");
  }
  absl::StrAppend(&levels, "\"a", kMaxDepth + 1, R"(":{"type":"null"}}})");
  EXPECT_EQ(Schema(levels).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Schema(std::string(kMaxGrammarBytes + 1, ' ')).code(),
            absl::StatusCode::kInvalidArgument);
  std::string many = R"({"type":"object","properties":{"p":{"type":"null"})";
  for (int i = 0; i < 1000; ++i) {
    absl::StrAppend(&many, ",\"p", i, R"(":{"type":"number","minimum":-0.5,"maximum":12.25})");
  }
  const absl::Status status = Schema(many + "}}");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("200000"));
}

TEST(GrammarTest, OneSchemaIsCompiledOnceHoweverItIsReferredTo) {
  const auto bytes_with = [](int num_refs) {
    std::string refs, values;
    for (int i = 0; i < num_refs; ++i) {
      absl::StrAppend(&refs, i > 0 ? "," : "", R"({"$ref":"#/$defs/)");
      for (int bit = 0; bit < 6; ++bit) refs += (i >> bit & 1) == 0 ? " " : "%20";
      refs += "\"}";
    }
    for (int i = 0; i < 500; ++i) absl::StrAppend(&values, i > 0 ? "," : "", "\"value", i, "\"");
    const auto grammar = JsonSchemaGrammar(
        absl::StrCat(R"({"$defs":{"      ":{"enum":[)", values, R"(]}},"anyOf":[)", refs, "]}"));
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    return (*grammar)->bytes();
  };
  EXPECT_LT(bytes_with(64), 2 * bytes_with(1));
}

TEST(GrammarTest, RefusesWhatTakesTooMuchWorkThoughFewStates) {
  std::string schema = R"({"enum":[0)", refs = "{}", path = "#/properties/a";
  for (int i = 0; i < 24'000; ++i) schema += ",0";
  schema += "]}";
  for (int i = 0; i < 26; ++i) {
    schema = absl::StrCat(R"({"anyOf":[)", schema, "]}");
    absl::StrAppend(&refs, R"(,{"$ref":")", path, "\"}");
    path += "/anyOf/0";
  }
  EXPECT_TRUE(Schema(absl::StrCat(R"({"properties":{"a":)", schema, "}}")).ok());
  // Each reference compiles what is below it.
  const absl::Status status = Schema(
      absl::StrCat(R"({"properties":{"a":)", schema, R"(,"b":{"prefixItems":[)", refs, "]}}}"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("too much work to compile"));
}

TEST(GrammarTest, RefusesRegularExpressionsByWhatTheyAsk) {
  for (const char* text : {"(?=a)", "(?<!a)b", "(a)\\1", "\\bword", "\\p{L}", "(?i)a", "a++", "a^b",
                           "(a$)", "{2}", "[[:alpha:]]", "[]a]", "(a*){100}", "\\012"}) {
    EXPECT_EQ(Regex(text).code(), absl::StatusCode::kUnimplemented) << text << Regex(text);
  }
  for (const char* text : {"(", ")", "[a", "*", "a**", "a{3,2}", "a{100000}", "\\", "\\xg0",
                           "[b-a]", "\xff", "a{2", "\\ud800"}) {
    EXPECT_EQ(Regex(text).code(), absl::StatusCode::kInvalidArgument) << text << Regex(text);
  }
  EXPECT_EQ(Regex("(a?){500}").message(),
            "regular expression, byte 9: a repetition of what may be empty, up to 500 times (more "
            "than 16), is not supported");
  EXPECT_EQ(Regex(std::string(100, '(') + std::string(100, ')')).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Regex(std::string(kMaxGrammarBytes + 1, 'a')).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(GrammarTest, AnAnswerIsFreeWhereItBeginsWithTheTextForThat) {
  const auto grammar = Grammar::Of({.form = GrammarSpec::Form::kChoice,
                                    .texts = {"yes"},
                                    .free_until = "</t>",
                                    .free_from = "<t>"});
  for (const char* text : {"yes", "<t></t>yes", "<t>no no</t>yes"}) {
    EXPECT_TRUE(IsWholeAnswer(grammar, text)) << text;
  }
  for (const char* text : {"no", "no</t>yes", "<t>no", "<t>yes", "<t></t>no"}) {
    EXPECT_FALSE(IsWholeAnswer(grammar, text)) << text;
  }
}

TEST(GrammarTest, RefusesChoicesThatAreNone) {
  EXPECT_EQ(ChoiceGrammar({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ChoiceGrammar({"a", ""}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ChoiceGrammar(std::vector<std::string>(kMaxChoices + 1, "a")).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ChoiceGrammar({std::string(kMaxGrammarBytes + 1, 'a')}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace bulkhead::structured
