#include "runtime/chat/chat_template.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ChatTemplateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/chat_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = dir_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  static std::string Rendered(const absl::StatusOr<ChatTemplate>& loaded,
                              const ChatRequest& request) {
    if (!loaded.ok()) return loaded.status().ToString();
    const absl::StatusOr<RenderedChat> rendered = RenderChat(*loaded, request);
    return rendered.ok() ? rendered->text : rendered.status().ToString();
  }

  static ChatRequest Hello() {
    ChatRequest request;
    request.messages = {{{"role", "user"}, {"content", "hello"}}};
    return request;
  }

  std::string dir_;
};

TEST_F(ChatTemplateTest, TakesTheTemplateAndTheSpecialTokensOfTokenizerConfig) {
  Write("tokenizer_config.json",
        R"({"chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
            "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null})");
  const auto loaded = LoadChatTemplate(dir_);
  EXPECT_EQ(Rendered(loaded, Hello()), "<s>hello</s>");
  EXPECT_EQ(loaded->special_tokens().dump(), R"({"bos_token":"<s>","eos_token":"</s>"})");
}

TEST_F(ChatTemplateTest, TakesSpecialTokensThatTokenizerConfigLacksFromTheOlderFile) {
  Write("tokenizer_config.json",
        R"({"chat_template": "{{ bos_token }}{{ eos_token }}", "eos_token": "</s>"})");
  Write("special_tokens_map.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "<other>"})");
  EXPECT_EQ(Rendered(LoadChatTemplate(dir_), Hello()), "<s></s>");
}

TEST_F(ChatTemplateTest, PrefersFilesToTokenizerConfig) {
  Write("tokenizer_config.json", R"({"chat_template": "config", "bos_token": "<s>"})");
  Write("chat_template.jinja", "file {{ bos_token }}");
  Write("additional_chat_templates/tool_use.jinja", "tools");
  const auto loaded = LoadChatTemplate(dir_);
  EXPECT_EQ(Rendered(loaded, Hello()), "file <s>");
  ChatRequest with_tools = Hello();
  with_tools.tools = {{{"type", "function"}}};
  EXPECT_EQ(Rendered(loaded, with_tools), "tools");
}

TEST_F(ChatTemplateTest, ChoosesAmongNamedTemplates) {
  Write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]})");
  Write("own.jinja", "own");
  EXPECT_EQ(Rendered(LoadChatTemplate(dir_), Hello()), "d");
  EXPECT_EQ(Rendered(LoadChatTemplate(dir_, "rag"), Hello()), "r");
  EXPECT_EQ(Rendered(LoadChatTemplate(dir_, dir_ + "/own.jinja"), Hello()), "own");
  EXPECT_THAT(Rendered(LoadChatTemplate(dir_, "other"), Hello()),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr("other"), HasSubstr("default, rag")));
}

TEST_F(ChatTemplateTest, SaysWhereATemplateIsMissingOrWrong) {
  EXPECT_THAT(Rendered(LoadChatTemplate(dir_), Hello()),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr("it may be a base model")));
  Write("tokenizer_config.json", R"({"chat_template": 3})");
  EXPECT_THAT(Rendered(LoadChatTemplate(dir_), Hello()), HasSubstr("neither a text nor a list"));
  Write("chat_template.jinja", "a\n{% if %}");
  EXPECT_THAT(Rendered(LoadChatTemplate(dir_), Hello()), HasSubstr("chat template: line 2"));
}

TEST_F(ChatTemplateTest, LaysOutTheSampleModelsTurns) {
  const auto loaded = LoadChatTemplate(absl::StrCat(BH_SOURCE_DIR, "/examples/models/sample"));
  EXPECT_EQ(Rendered(loaded, Hello()), "<|begin|><|user|>hello<|end|><|assistant|>");
  ChatRequest ghost = Hello();
  ghost.messages[0]["role"] = "ghost";
  EXPECT_THAT(Rendered(loaded, ghost), HasSubstr("only user and assistant"));
}

TEST_F(ChatTemplateTest, JoinsPartsUnlessTheTemplateReadsThem) {
  ChatRequest request;
  request.messages = ordered_json::parse(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  EXPECT_EQ(Rendered(ChatTemplate::Parse("{{ messages[0].content }}", "t"), request), "a\nb");
  EXPECT_EQ(Rendered(ChatTemplate::Parse(
                         "{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}", "t"),
                     request),
            "<a><b>");
}

TEST_F(ChatTemplateTest, RefusesWrongMessagesByIndexAndImagesByName) {
  const auto parsed = ChatTemplate::Parse("{{ messages }}", "t");
  const auto refusal = [&](const std::string& messages) {
    ChatRequest request;
    request.messages = ordered_json::parse(messages);
    const absl::StatusOr<RenderedChat> rendered = RenderChat(*parsed, request);
    EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument) << messages;
    return std::string(rendered.status().message());
  };
  EXPECT_THAT(refusal(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])"),
              AllOf(HasSubstr("messages[0]"), HasSubstr("image_url"), HasSubstr("text only")));
  EXPECT_THAT(refusal("[]"), HasSubstr("at least one"));
  EXPECT_THAT(refusal("{}"), HasSubstr("list"));
  EXPECT_THAT(refusal(R"([{"role": "user", "content": "a"}, 3])"), HasSubstr("messages[1]"));
  EXPECT_THAT(refusal(R"([{"content": "a"}])"), HasSubstr("role"));
  EXPECT_THAT(refusal(R"([{"role": "user", "content": 5}])"), HasSubstr("content is 5"));
  EXPECT_THAT(
      refusal(
          R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}])"),
      HasSubstr("arguments"));
  EXPECT_THAT(refusal(R"([{"role": "assistant", "function_call": {"name": "f"}}])"),
              HasSubstr("messages[0]: function_call is not supported; write the call as one of"));
}

TEST_F(ChatTemplateTest, GivesArgumentsOfCallsAsObjects) {
  ChatRequest request;
  request.messages = ordered_json::parse(
      R"([{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}}]}])");
  EXPECT_EQ(Rendered(ChatTemplate::Parse("[{{ messages[0].content }}]{{ "
                                         "messages[0].tool_calls[0].function.arguments | tojson }}",
                                         "t"),
                     request),
            "[]{\"b\": 1, \"a\": 2}");
}

TEST_F(ChatTemplateTest, TakesBackTheCallsOfItsOwnAnswers) {
  const auto parsed =
      ChatTemplate::Parse("{{ messages[0].tool_calls[0].function.arguments | tojson }}", "t");
  const auto arguments = [&](const ordered_json& text) {
    ChatRequest request;
    request.messages = {{{"role", "assistant"},
                         {"function_call", nullptr},
                         {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", text}}}}}}}};
    return Rendered(parsed, request);
  };
  EXPECT_EQ(arguments(R"({"a": "tex)"), R"("{\"a\": \"tex")") << "cut off by max_tokens";
  EXPECT_EQ(arguments(R"({"a": 1, "b": {"c": 1, "c": 2}, "a": 3})"), R"({"b": {"c": 2}, "a": 3})");
  EXPECT_EQ(arguments("null"), "{}");
  EXPECT_EQ(arguments(nullptr), "{}");
  EXPECT_EQ(arguments("[1]"), R"("[1]")");
}

TEST_F(ChatTemplateTest, PassesKwargsAndKeepsItsOwnVariables) {
  const auto parsed =
      ChatTemplate::Parse("{{ enable_thinking }}{{ add_generation_prompt }}{{ tools }}", "t");
  ChatRequest request = Hello();
  request.template_kwargs = {{"enable_thinking", false}};
  EXPECT_EQ(Rendered(parsed, request), "FalseTrueNone");
  request.template_kwargs = {{"messages", "x"}};
  EXPECT_THAT(Rendered(parsed, request), HasSubstr("cannot set 'messages'"));
}

TEST_F(ChatTemplateTest, ReadsReasoningUnderEitherName) {
  const auto parsed = ChatTemplate::Parse(
      "{% for m in messages %}{{ m.reasoning }}|{{ m.reasoning_content }};{% endfor %}", "t");
  ChatRequest request;
  request.messages = ordered_json::parse(R"([{"role": "assistant", "reasoning": "new"},
      {"role": "assistant", "reasoning_content": "old", "reasoning": null},
      {"role": "assistant", "reasoning": "a", "reasoning_content": "b"},
      {"role": "assistant"}])");
  EXPECT_EQ(Rendered(parsed, request), "new|new;old|old;a|b;|;");
}

TEST_F(ChatTemplateTest, GivesReasoningToGptOssAsThinking) {
  const auto parsed = ChatTemplate::Parse(
      "{% for m in messages %}{{ 'thinking' in m }}|{{ m.thinking }};{% endfor %}", "t");
  ChatRequest request;
  request.messages = ordered_json::parse(R"([{"role": "assistant", "reasoning": "new"},
      {"role": "assistant", "content": "", "reasoning_content": "old",
       "tool_calls": [{"function": {"name": "f"}}]},
      {"role": "assistant", "content": "I look.", "reasoning": "left out",
       "tool_calls": [{"function": {"name": "f"}}]},
      {"role": "assistant", "content": "text", "reasoning": "kept"},
      {"role": "assistant", "content": "text"}])");
  EXPECT_EQ(Rendered(parsed, request), "True|new;True|old;False|;True|kept;False|;");
}

TEST_F(ChatTemplateTest, LeavesTheLastMessageOpen) {
  const auto parsed = ChatTemplate::Parse(
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}{% if "
      "add_generation_prompt %}<assistant>{% endif %}",
      "t");
  ChatRequest request = Hello();
  request.messages.push_back({{"role", "assistant"}, {"content", "Once upon "}});
  request.continue_final_message = true;
  EXPECT_THAT(Rendered(parsed, request), HasSubstr("exclude each other"));
  request.add_generation_prompt = false;
  EXPECT_EQ(Rendered(parsed, request), "<user>hello</><assistant>Once upon");
  // An earlier message with the text as it is, white space included, is not the last one.
  request.messages = {{{"role", "user"}, {"content", "List:\n- a"}},
                      {{"role", "assistant"}, {"content", "List:\n"}}};
  EXPECT_EQ(Rendered(parsed, request), "<user>List:\n- a</><assistant>List:");
}

TEST_F(ChatTemplateTest, LeavesALastMessageOpenWhoseTextIsInTheMarkerOfItsEndToo) {
  const auto chatml = ChatTemplate::Parse(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
      "t");
  ChatRequest request = Hello();
  request.continue_final_message = true;
  request.add_generation_prompt = false;
  for (const std::string last : {"|", ">", "<", "im_end", "Once upon ", " a\n\n"}) {
    request.messages = {{{"role", "assistant"}, {"content", last}}};
    EXPECT_EQ(Rendered(chatml, request), "<|im_start|>assistant\n" + last);
  }
}

TEST_F(ChatTemplateTest, LeavesTheLastPartOfALastMessageOpen) {
  const auto parts = ChatTemplate::Parse(
      "{% for p in messages[0].content %}<{{ p.text | trim }}>{% endfor %}", "t");
  ChatRequest request;
  request.messages = ordered_json::parse(
      R"([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "> "}]}])");
  request.continue_final_message = true;
  request.add_generation_prompt = false;
  EXPECT_EQ(Rendered(parts, request), "<a><>");
  EXPECT_EQ(Rendered(ChatTemplate::Parse("[{{ messages[0].content }}]", "t"), request), "[a\n> ");
  request.messages[0]["content"] = ordered_json::array();
  EXPECT_THAT(Rendered(parts, request), HasSubstr("needs text in the last message"));
}

TEST_F(ChatTemplateTest, LeavesNoMessageOpenThatTheTemplateChanges) {
  ChatRequest request = Hello();
  request.continue_final_message = true;
  request.add_generation_prompt = false;
  const auto rendered = [&](const std::string& text) {
    return Rendered(ChatTemplate::Parse(text, "t"), request);
  };
  const auto refused = HasSubstr("does not print the last message as it is");
  EXPECT_THAT(rendered("{{ messages[0].content | upper }}"), refused);
  EXPECT_THAT(rendered("{{ messages[0].content[:2] }}"), refused);
  EXPECT_THAT(rendered("hello {{ messages[0].content | replace('h', 'j') }}"), refused);
  EXPECT_THAT(rendered("{{ messages[0].role }}"), refused);
  // Printed twice it is as it is.
  EXPECT_EQ(rendered("{{ messages[0].content }}|{{ messages[0].content }}</>"), "hello|hello");
}

}  // namespace
}  // namespace bulkhead
