// ChatOutput: splits the text of a chat's choice into content, reasoning and tool calls as it
// arrives. Text that its parser holds back counts as part of the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/output_parser.h"
#include "runtime/service/answer_budget.h"

namespace bulkhead {

struct ChatOutputOptions {
  // How the text is split, except the choice in call_id_seed; none: it is all content.
  std::optional<OutputParserOptions> parser;
  bool several_tool_calls = true;
  bool includes_reasoning = true;
  // Budget for text that parsers hold back; outlives the output. Null: not counted, because it is
  // part of a text that is counted.
  AnswerBudget* answers = nullptr;
  AnswerBudget::Hold tools_hold;  // for the parsers' copies of the tools
};

OutputParserOptions ParserOf(const ChatOutputOptions& options, int choice);

// Used by one thread.
class ChatOutput {
 public:
  // `options` outlives it.
  ChatOutput(const ChatOutputOptions* options, int choice);

  // The next deltas, except those the client does not want. RESOURCE_EXHAUSTED (ANSWER_BUDGET).
  absl::StatusOr<std::deque<ParsedDelta>> Append(absl::string_view text);
  std::deque<ParsedDelta> Finish();

  // As OutputParser's.
  bool is_call_whole(int call) const { return parser_->is_call_whole(call); }
  // After Finish: there are calls, and all that were given are whole.
  bool may_call() const;
  // Kind of the latest piece, wanted or not; none before the first.
  std::optional<ParsedDelta::Kind> last_kind() const { return last_kind_; }

 private:
  // Counts `given` bytes given to the parser, which returned `got`: they are held until the next
  // delta shows that they were written.
  absl::Status CountHeld(size_t given, const std::vector<ParsedDelta>& got);
  std::deque<ParsedDelta> Wanted(std::vector<ParsedDelta> deltas);

  const ChatOutputOptions* const options_;
  const int choice_;
  std::optional<OutputParser> parser_;
  std::optional<ParsedDelta::Kind> last_kind_;
  int64_t held_bytes_ = 0;  // upper bound of text held by the parser
  AnswerBudget::Hold hold_;
};

}  // namespace bulkhead
