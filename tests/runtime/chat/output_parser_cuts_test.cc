// Answers cut anywhere, and answers that no model should give.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/runtime/chat/output_samples.h"

namespace bulkhead {
namespace {

TEST(OutputParser, GivesTheSameForEveryCutOfATextInTwoAndInCharacters) {
  for (const Sample& sample : Samples()) {
    OutputParser whole(sample.options);
    std::vector<ParsedDelta> deltas = whole.Append(sample.text);
    Extend(&deltas, whole.Finish());
    const std::string expected = Describe(deltas);
    for (size_t cut = 0; cut <= sample.text.size(); ++cut) {
      OutputParser parser(sample.options);
      std::vector<ParsedDelta> parts = parser.Append(sample.text.substr(0, cut));
      Extend(&parts, parser.Append(sample.text.substr(cut)));
      Extend(&parts, parser.Finish());
      ASSERT_EQ(Describe(parts), expected) << sample.text << "\ncut at " << cut;
    }
    OutputParser parser(sample.options);
    std::vector<ParsedDelta> parts;
    for (const char c : sample.text) Extend(&parts, parser.Append(std::string(1, c)));
    Extend(&parts, parser.Finish());
    EXPECT_EQ(Describe(parts), expected) << sample.text;
  }
}

std::string Repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string InPieces(const OutputParserOptions& options, const std::string& text, size_t bytes) {
  OutputParser parser(options);
  std::vector<ParsedDelta> deltas;
  for (size_t at = 0; at < text.size(); at += bytes) {
    Extend(&deltas, parser.Append(text.substr(at, bytes)));
  }
  Extend(&deltas, parser.Finish());
  return Describe(deltas);
}

TEST(OutputParserTest, MarkersWithoutEndEndAndAreTheSameInAnyPieces) {
  for (const char* marker : {"<|channel|>", "<|start|>", "<|end|>", "<|call|>", "<|message|>"}) {
    const std::string text = Repeated(marker, 2000);
    const std::string whole = InPieces(With("openai", "openai_gptoss"), text, text.size());
    EXPECT_EQ(InPieces(With("openai", "openai_gptoss"), text, 7), whole) << marker;
  }
  for (const char* marker : {"<tool_call>", "<think>", " "}) {
    const std::string text = Repeated(marker, 2000) + "<think>x";
    const std::string whole = InPieces(With("hermes", "qwen3"), text, text.size());
    EXPECT_EQ(InPieces(With("hermes", "qwen3"), text, 7), whole) << marker;
  }
}

TEST(OutputParserTest, TextsWithRandomChangesAreTheSameHoweverCut) {
  const std::vector<std::string> pieces = {"<tool_call>",
                                           "</tool_call>",
                                           "{",
                                           "}",
                                           "\"",
                                           "\\",
                                           "[",
                                           "]",
                                           ",",
                                           ":",
                                           "\"name\": \"f\"",
                                           ", \"arguments\": {",
                                           "\"parameters\":{\"a\": 1}",
                                           "\n",
                                           " ",
                                           "f",
                                           "12",
                                           "<function=f>",
                                           "</function>",
                                           "<parameter=a>",
                                           "</parameter>",
                                           "<arg_key>a</arg_key>",
                                           "<arg_value>",
                                           "</arg_value>",
                                           "<|tool_call_begin|>functions.f:0",
                                           "<|tool_call_argument_begin|>",
                                           "<|tool_call_end|>",
                                           "<|tool_calls_section_end|>",
                                           "[TOOL_CALLS]",
                                           "f[ARGS]",
                                           ";",
                                           "<｜tool▁call▁begin｜>f<｜tool▁sep｜>",
                                           "<｜tool▁call▁end｜>",
                                           "<|channel|>commentary",
                                           " to=functions.f",
                                           "<|message|>",
                                           "<|end|>",
                                           "<|call|>",
                                           "<think>",
                                           "</think>",
                                           "<"};
  uint32_t state = 1;
  const auto random = [&state](size_t count) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % count;
  };
  int num_calls = 0;
  for (const Sample& sample : Samples()) {
    for (int i = 0; i < 500; ++i) {
      std::string text = sample.text;
      for (size_t count = random(4); count > 0; --count) {
        const size_t at = random(text.size() + 1);
        if (random(2) == 0) text.erase(at, random(12));
        text.insert(std::min(at, text.size()), pieces[random(pieces.size())]);
      }
      OutputParser parser(sample.options);
      std::vector<ParsedDelta> deltas;
      for (size_t at = 0, bytes; at < text.size(); at += bytes) {
        bytes = 1 + random(9);
        Extend(&deltas, parser.Append(text.substr(at, bytes)));
      }
      Extend(&deltas, parser.Finish());
      num_calls += parser.num_tool_calls();
      ASSERT_EQ(Describe(deltas), InPieces(sample.options, text, text.size())) << text;
    }
  }
  EXPECT_GT(num_calls, 5000);
}

TEST(OutputParserTest, AMegabyteOfMarkersTakesNoTimeThatGrowsWithItsSquare) {
  // Quadratic, it would take minutes: the test's limit is the check.
  ParseOutput(With("openai", "openai_gptoss"), Repeated("<|end|>", 150'000));
  ParseOutput(With("deepseek_v3", "none"), Repeated("<｜tool▁call▁begin｜>", 40'000));
  ParseOutput(With("hermes", "none"), Repeated("<tool_call>", 90'000));
  ParseOutput(With("glm45", "none"), Repeated("<tool_call>f<arg_key>a</arg_key>", 30'000));
  ParseOutput(With("kimi_k2", "none"), Repeated("<|tool_call_begin|>f", 40'000));
  const std::string open_value = "<tool_call>f<arg_key>a</arg_key><arg_value>";
  InPieces(With("glm45", "none"), open_value + Repeated("</arg_valu", 100'000), 7);
  InPieces(With("glm45", "none"), open_value + "1" + std::string(1 << 20, ' '), 64);
  InPieces(With("hermes", "none"), "<tool_call>" + Repeated("{\"name\":", 100'000), 7);
  OutputParser spaces(With("none", "qwen3"));
  for (int i = 0; i < 20'000; ++i) spaces.Append(std::string(64, ' '));
}

}  // namespace
}  // namespace bulkhead
