#include "runtime/service/http/chat_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/refusal.h"
#include "runtime/structured/grammar.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

RequestRules Rules() {
  RequestRules rules;
  rules.max_model_len = 64;
  return rules;
}

ChatCompletionRequest ChatWith(const std::string& fields) {
  auto body =
      ParseBody(absl::StrCat(R"({"messages": [{"role": "user", "content": "a"}], )", fields, "}"));
  EXPECT_TRUE(body.ok()) << body.status();
  auto read = ReadChat(*std::move(body), Rules());
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? *std::move(read) : ChatCompletionRequest();
}

const char kTools[] = R"("tools": [
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object",
       "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"], "additionalProperties": false,
       "$defs": {"n": {"type": "integer", "minimum": 1, "maximum": 3}}}}},
    {"type": "function", "function": {"name": "now"}}])";

structured::GrammarSpec SpecOf(const v1::StructuredOutput& form) {
  return {.form = structured::GrammarSpec::Form::kJsonSchema,
          .texts = {form.json_schema()},
          .prefix = form.prefix(),
          .suffix = form.suffix(),
          .free_until = form.free_until(),
          .free_from = form.free_from()};
}

TEST(ChatFormTest, ASchemaThatIsRefusedIsThatOfItsTool) {
  for (const char* choice :
       {R"("required")", R"({"type": "function", "function": {"name": "b"}})"}) {
    ChatCompletionRequest request = ChatWith(absl::StrCat(
        R"("tools": [{"type": "function", "function": {"name": "a"}},
                     {"type": "function", "function": {"name": "b", "parameters":
                       {"properties": {"x": {"not": {}}}}}}], "tool_choice": )",
        choice));
    ASSERT_TRUE(AddForm({.tool = ToolFormat::kHermes}, "prompt", &request).ok());
    const absl::Status refused =
        structured::Grammar::Of(SpecOf(request.common.structured())).status();
    const absl::Status named = InFormField(
        InvalidField("structured.json_schema", refused.message()), request.options.form_field);
    EXPECT_THAT(std::string(named.message()),
                testing::StartsWith("tools[1].function.parameters: JSON schema, #/properties/x: "));
  }
}

TEST(ChatFormTest, ARequiredCallIsOneOfTheToolsInTheModelsFormat) {
  ChatCompletionRequest request;
  for (const ToolFormat tool :
       {ToolFormat::kQwen3Coder, ToolFormat::kHunyuan, ToolFormat::kHermes}) {
    request = ChatWith(absl::StrCat(kTools, R"(, "tool_choice": "required")"));
    ASSERT_TRUE(AddForm({.tool = tool}, "prompt", &request).ok());
    EXPECT_EQ(request.common.structured().prefix(), "<tool_call>\n");
    EXPECT_EQ(request.common.structured().suffix(), "\n</tool_call>");
  }
  const v1::StructuredOutput& form = request.common.structured();
  const Json schema = Json::parse(form.json_schema());
  ASSERT_EQ(schema["anyOf"].size(), 2U);
  EXPECT_EQ(schema["anyOf"][0]["properties"]["name"]["const"], "add");
  EXPECT_EQ(schema["$defs"]["0"]["properties"]["a"]["$ref"], "#/$defs/0/$defs/n");
  EXPECT_EQ(schema["$defs"]["1"], Json::parse(R"({"properties": {}, "type": "object"})"))
      << "a tool without parameters is called with {}";
  EXPECT_TRUE(structured::Grammar::Of(SpecOf(form)).ok());
}

TEST(ChatFormTest, ReferencesAreMovedAndDataAndNamesAreNot) {
  ChatCompletionRequest request = ChatWith(R"("tool_choice": "required", "tools": [{"type":
      "function", "function": {"name": "f", "parameters": {"properties": {
      "enum": {"$ref": "#/$defs/n"}, "x": {"enum": [{"$ref": "#/x"}]}},
      "$defs": {"n": {"type": "integer"}}}}}])");
  ASSERT_TRUE(AddForm({.tool = ToolFormat::kHermes}, "prompt", &request).ok());
  const Json moved = Json::parse(request.common.structured().json_schema())["$defs"]["0"];
  EXPECT_EQ(moved["type"], "object");
  EXPECT_EQ(moved["properties"]["enum"]["$ref"], "#/$defs/0/$defs/n");
  EXPECT_EQ(moved["properties"]["x"]["enum"][0]["$ref"], "#/x");
}

TEST(ChatFormTest, ANamedCallIsOfThatToolAlone) {
  ChatCompletionRequest request = ChatWith(absl::StrCat(
      kTools, R"(, "tool_choice": {"type": "function", "function": {"name": "now"}})"));
  ASSERT_TRUE(AddForm({.tool = ToolFormat::kLlama3Json}, "prompt", &request).ok());
  const v1::StructuredOutput& form = request.common.structured();
  EXPECT_EQ(form.prefix(), "");
  const Json schema = Json::parse(form.json_schema());
  ASSERT_EQ(schema["anyOf"].size(), 1U);
  EXPECT_EQ(schema["anyOf"][0]["properties"]["name"]["const"], "now");
  EXPECT_EQ(schema["anyOf"][0]["required"], Json::parse(R"(["name", "parameters"])"));
  EXPECT_TRUE(structured::Grammar::Of(SpecOf(form)).ok());
}

TEST(ChatFormTest, FormatsWithoutAFormAreRefusedByName) {
  for (const ToolFormat tool :
       {ToolFormat::kNone, ToolFormat::kMistral, ToolFormat::kDeepSeek, ToolFormat::kHarmony,
        ToolFormat::kCohere, ToolFormat::kPhi4Mini, ToolFormat::kFunctionGemma}) {
    ChatCompletionRequest request =
        ChatWith(absl::StrCat(kTools, R"(, "tool_choice": "required")"));
    const absl::Status status = AddForm({.tool = tool}, "prompt", &request);
    EXPECT_EQ(ReasonOf(status), reason::kUnsupportedParameter);
    EXPECT_THAT(std::string(status.message()), HasSubstr("tool_choice"));
  }
  ChatCompletionRequest request = ChatWith(R"("response_format": {"type": "json_object"})");
  const absl::Status status = AddForm({.reasoning = ReasoningFormat::kHarmony}, "prompt", &request);
  EXPECT_EQ(ReasonOf(status), reason::kUnsupportedParameter);
}

TEST(ChatFormTest, AFormBeginsBehindReasoningThatThePromptOrTheModelOpens) {
  const OutputFormat thinks = {.reasoning = ReasoningFormat::kThinkTags};
  const auto free_until = [&](const OutputFormat& format, const char* prompt) {
    ChatCompletionRequest request = ChatWith(R"("response_format": {"type": "json_object"})");
    EXPECT_TRUE(AddForm(format, prompt, &request).ok());
    const v1::StructuredOutput& form = request.common.structured();
    return absl::StrCat(form.free_from(), form.free_from().empty() ? "" : "...", form.free_until());
  };
  EXPECT_EQ(free_until(thinks, "<assistant><think>\n"), "</think>");
  EXPECT_EQ(free_until(thinks, "<assistant><think>\n\n</think>\n"), "");
  EXPECT_EQ(free_until(thinks, "<assistant>"), "<think>...</think>");
  OutputFormat inside = thinks;
  inside.starts_in_reasoning = true;
  EXPECT_EQ(free_until(inside, "<assistant>"), "</think>");
  EXPECT_EQ(free_until({.reasoning = ReasoningFormat::kHunyuan}, "<｜hy_Assistant｜>"),
            "<think>...</think>");
  EXPECT_EQ(free_until({}, "<assistant><think>\n"), "");
}

TEST(ChatFormTest, AFormThatCannotSeeTheEndOfReasoningBeginsAtOnceOrIsRefused) {
  const OutputFormat cohere = {.reasoning = ReasoningFormat::kCohere};
  ChatCompletionRequest request = ChatWith(R"("response_format": {"type": "json_object"})");
  EXPECT_TRUE(AddForm(cohere, "<|CHATBOT_TOKEN|>", &request).ok());
  EXPECT_EQ(request.common.structured().free_until(), "");
  const absl::Status status = AddForm(cohere, "<|START_THINKING|>", &request);
  EXPECT_EQ(ReasonOf(status), reason::kUnsupportedParameter);
  EXPECT_THAT(std::string(status.message()), HasSubstr("<|START_THINKING|>"));
}

TEST(ChatFormTest, AnswersWithoutAFormAreLeftAsTheyAre) {
  ChatCompletionRequest request = ChatWith(kTools);
  EXPECT_TRUE(AddForm({.tool = ToolFormat::kMistral, .reasoning = ReasoningFormat::kThinkTags},
                      "<think>", &request)
                  .ok());
  EXPECT_FALSE(request.common.has_structured());
}

}  // namespace
}  // namespace bulkhead
