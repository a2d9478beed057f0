// OutputParser: takes the text that a model writes, as it streams, apart into the reasoning, the
// content and the tool calls of the OpenAI API. Formats are named as vLLM's --reasoning-parser and
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

// "" and "none": no parser; "auto" follows from the template's text. openai and openai_gptoss are
// one format, and either chooses it for both. INVALID_ARGUMENT lists the names.
absl::StatusOr<OutputFormat> ChooseOutputFormat(absl::string_view tool_parser,
                                                absl::string_view reasoning_parser,
                                                absl::string_view template_text);

// Whether the parser must be given special tokens (skip_special_tokens = false): the tags of the
// format are among them. Name those that are no tags, as EOS, in
// OutputParserOptions::hidden_tokens.
bool NeedsSpecialTokens(const OutputFormat& format);

// Whether the parser must be given the request's tools.
bool NeedsTools(const OutputFormat& format);

struct OutputParserOptions {
  OutputFormat format;
  // False where the request has no tools, or tool_choice "none": what looks like a call is content.
  bool parse_tool_calls = true;
  // The output has the form of a call: the rest of one that was cut off is no content.
  bool calls_alone = false;
  // The request's tools, by whose schemas formats with tags tell strings from other values; or
  // null.
  nlohmann::ordered_json tools;
  // The prompt's text; whether it left reasoning open (or closed it) is read from its end.
  std::string prompt;
  // What ids of tool calls are made of, with the index of the call: the id of the request and of
  // the choice.
  std::string call_id_seed;
  // Special tokens that are no text (EOS), which are left out wherever they appear.
  std::vector<std::string> hidden_tokens;
};

// One per choice; used by one thread. A call is given from where its arguments begin: first its id
// and name, then the arguments as they come, whether or not they will be valid JSON. What looked
// like a call and is broken or cut off before that is content: nothing is lost but white space
// around reasoning and calls; that of one side stays where a call is between texts. Texts may be
// cut anywhere between characters; joined results do not depend on the cuts.
class OutputParser {
 public:
  explicit OutputParser(OutputParserOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;

  // What follows from the text so far. Holds back at most kMaxCallBytes.
  std::vector<ParsedDelta> Append(absl::string_view text);
  // The rest, at the end of the generation.
  std::vector<ParsedDelta> Finish();

  int num_tool_calls() const;
  // Of a call after which something else was given, or after Finish: whether its arguments are
  // JSON. One that the model wrote wrong, or that was cut off, cannot be made.
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
