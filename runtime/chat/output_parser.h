// OutputParser: splits the text that a model writes, as it streams, into the reasoning, content and
// tool calls of the OpenAI API. Formats are named as in vLLM's --reasoning-parser and
// --tool-call-parser.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "runtime/chat/output_delta.h"
#include "runtime/chat/reasoning.h"
#include "runtime/chat/tool_calls.h"

namespace bulkhead {

struct OutputFormat {
  ToolFormat tool = ToolFormat::kNone;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  // A text without the tag begins inside the reasoning (deepseek_r1): its prompt may have opened
  // it.
  bool starts_in_reasoning = false;
};

// "" and "none": no parser; "auto" chooses by the template's text. openai and openai_gptoss are one
// format; either chooses it for both parsers. INVALID_ARGUMENT lists the names.
absl::StatusOr<OutputFormat> ChooseOutputFormat(absl::string_view tool_parser,
                                                absl::string_view reasoning_parser,
                                                absl::string_view template_text);

// Whether the parser must be given special tokens (skip_special_tokens = false): the tags of the
// format are among them. List those that are not tags, such as EOS, in
// OutputParserOptions::hidden_tokens.
bool NeedsSpecialTokens(const OutputFormat& format);

// Whether the parser must be given the request's tools.
bool NeedsTools(const OutputFormat& format);

struct OutputParserOptions {
  OutputFormat format;
  // False if the request has no tools, or tool_choice "none": text like a call is content.
  bool parse_tool_calls = true;
  // The output has the form of a call: the rest of a call that was cut off is not content.
  bool calls_alone = false;
  // The request's tools, whose schemas tell strings from other values in formats with tags; or
  // null.
  nlohmann::ordered_json tools;
  // The prompt's text; whether it left reasoning open (or closed it) is read from its end.
  std::string prompt;
  // Ids of tool calls are made from this and the call's index: the ids of request and choice.
  std::string call_id_seed;
  // Special tokens that are not text (EOS); they are removed wherever they appear.
  std::vector<std::string> hidden_tokens;
};

// One per choice; used by one thread. A call is emitted once its arguments begin: first its id and
// name, then the arguments as they arrive, whether or not they will be valid JSON. Text like a call
// that is broken or cut off before that is content. Only white space around reasoning and calls is
// lost; between two texts, the white space on one side of the call is kept. Texts may be cut
// anywhere between characters; joined results do not depend on the cuts.
class OutputParser {
 public:
  explicit OutputParser(OutputParserOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;

  // The new deltas, given the text so far. Holds back at most kMaxCallBytes.
  std::vector<ParsedDelta> Append(absl::string_view text);
  // The rest, at the end of the generation.
  std::vector<ParsedDelta> Finish();

  int num_tool_calls() const;
  // Whether the arguments of a call are JSON; valid once something else was emitted after it, or
  // after Finish. A call that the model wrote wrong, or that was cut off, cannot be executed.
  bool is_call_whole(int call) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A whole text at once: the joined result of the streaming parse.
struct ParsedOutput {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
};
ParsedOutput ParseOutput(OutputParserOptions options, absl::string_view text);

}  // namespace bulkhead
