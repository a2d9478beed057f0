#include "runtime/service/http/chat_output.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/host_quotas.h"

namespace bulkhead {

OutputParserOptions ParserOf(const ChatOutputOptions& options, int choice) {
  OutputParserOptions parser = *options.parser;
  absl::StrAppend(&parser.call_id_seed, "-", choice);
  return parser;
}

ChatOutput::ChatOutput(const ChatOutputOptions* options, int choice)
    : options_(options), choice_(choice) {}

// Any output shows that all text held before was emitted.
absl::Status ChatOutput::CountHeld(size_t given, const std::vector<ParsedDelta>& got) {
  if (options_->answers == nullptr) return absl::OkStatus();
  held_bytes_ = (got.empty() ? held_bytes_ : 0) + static_cast<int64_t>(given);
  int64_t bytes = held_bytes_;
  for (const ParsedDelta& delta : got) bytes += static_cast<int64_t>(delta.text.size());
  hold_.ShrinkTo(bytes);
  // A few are part of the stream's own share.
  if (bytes <= kStreamShareBytes) return absl::OkStatus();
  return options_->answers->Grow(hold_, bytes, AnswerBudget::Use::kAcceptedWork);
}

std::deque<ParsedDelta> ChatOutput::Wanted(std::vector<ParsedDelta> deltas) {
  std::deque<ParsedDelta> wanted;
  for (ParsedDelta& delta : deltas) {
    last_kind_ = delta.kind;
    if (delta.kind == ParsedDelta::Kind::kReasoning && !options_->includes_reasoning) continue;
    if (delta.kind == ParsedDelta::Kind::kToolCall && delta.call_index > 0 &&
        !options_->several_tool_calls) {
      continue;
    }
    wanted.push_back(std::move(delta));
  }
  return wanted;
}

absl::StatusOr<std::deque<ParsedDelta>> ChatOutput::Append(absl::string_view text) {
  std::vector<ParsedDelta> deltas;
  if (options_->parser.has_value()) {
    if (!parser_.has_value()) {
      parser_.emplace(ParserOf(*options_, choice_));
      if (options_->answers != nullptr) {
        BH_ASSIGN_OR_RETURN(hold_, options_->answers->Admit(0));
      }
    }
    deltas = parser_->Append(text);
    BH_RETURN_IF_ERROR(CountHeld(text.size(), deltas));
  } else if (!text.empty()) {
    deltas.push_back({ParsedDelta::Kind::kContent, std::string(text), 0, "", ""});
  }
  return Wanted(std::move(deltas));
}

std::deque<ParsedDelta> ChatOutput::Finish() {
  return parser_.has_value() ? Wanted(parser_->Finish()) : std::deque<ParsedDelta>();
}

bool ChatOutput::may_call() const {
  const int made = parser_.has_value() ? parser_->num_tool_calls() : 0;
  const int given = options_->several_tool_calls ? made : std::min(made, 1);
  int whole = 0;
  while (whole < given && parser_->is_call_whole(whole)) ++whole;
  return given > 0 && whole == given;
}

}  // namespace bulkhead
