#include "runtime/chat/reasoning.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace bulkhead {
namespace {

constexpr absl::string_view kThink = "<think>";
constexpr absl::string_view kThinkEnd = "</think>";
constexpr size_t kMaxSpaceBefore = 1024;  // what is behind more of it is not looked at for <think>

}  // namespace

ReasoningParser::Start StartAfterPrompt(absl::string_view prompt, bool inside_unless_told) {
  const absl::string_view end = absl::StripTrailingAsciiWhitespace(prompt);
  if (absl::EndsWith(end, kThink)) return ReasoningParser::Start::kInReasoning;
  if (absl::EndsWith(end, kThinkEnd)) return ReasoningParser::Start::kContent;
  return inside_unless_told ? ReasoningParser::Start::kInReasoning
                            : ReasoningParser::Start::kUnknown;
}

ReasoningParser::ReasoningParser(Start start)
    : state_(start == Start::kContent ? State::kContent : State::kStart),
      inside_(start == Start::kInReasoning) {
  reasoning_.BesideCall();
}

std::string ReasoningParser::Append(absl::string_view text, std::vector<ParsedDelta>* out) {
  buffer_.append(text.data(), text.size());
  std::string content;
  while (Step(out, &content)) {
  }
  return content;
}

std::string ReasoningParser::Finish(std::vector<ParsedDelta>* out) {
  std::string content;
  if (state_ == State::kReasoning || (state_ == State::kStart && inside_)) {
    reasoning_.Write(buffer_, out);
  } else {
    content = buffer_;
  }
  buffer_.clear();
  return content;
}

bool ReasoningParser::Step(std::vector<ParsedDelta>* out, std::string* content) {
  if (state_ == State::kStart) {
    const absl::string_view text = absl::StripLeadingAsciiWhitespace(buffer_);
    const bool may_open = buffer_.size() - text.size() <= kMaxSpaceBefore;
    if (may_open && text.size() < kThink.size() && absl::StartsWith(kThink, text)) return false;
    state_ = inside_ ? State::kReasoning : State::kContent;
    if (may_open && absl::StartsWith(text, kThink)) {
      buffer_.erase(0, buffer_.size() - text.size() + kThink.size());
      state_ = State::kReasoning;
    }
    return true;
  }
  if (state_ == State::kReasoning) {
    size_t which = 0, safe = 0;
    const size_t at = FindMarker(buffer_, {kThinkEnd}, &which, &safe);
    const bool ends = at != std::string::npos;
    reasoning_.Write(buffer_.substr(0, ends ? at : safe), out);
    buffer_.erase(0, ends ? at + kThinkEnd.size() : safe);
    if (!ends) return false;
    state_ = State::kContent;
    drops_space_ = true;
    return true;
  }
  if (drops_space_) {
    buffer_.erase(0, buffer_.size() - absl::StripLeadingAsciiWhitespace(buffer_).size());
    if (buffer_.empty()) return false;
    drops_space_ = false;
  }
  *content += buffer_;
  buffer_.clear();
  return false;
}

}  // namespace bulkhead
