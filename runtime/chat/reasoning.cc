#include "runtime/chat/reasoning.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace bulkhead {
namespace {

constexpr size_t kMaxSpaceBefore = 1024;  // after more of it the tag is not searched

// Bytes of a text before its possible end: the tag, white space around it, or a part of these.
size_t BytesBeforeEnd(absl::string_view text, absl::string_view tag) {
  const size_t limit = kMaxSpaceBefore + tag.size();
  absl::string_view rest = absl::StripTrailingAsciiWhitespace(text);
  if (!absl::ConsumeSuffix(&rest, tag) && rest.size() == text.size()) {
    size_t which = 0, safe = 0;
    FindMarker(rest, {tag}, &which, &safe);
    rest = rest.substr(0, safe);
  }
  return std::max(absl::StripTrailingAsciiWhitespace(rest).size(),
                  text.size() - std::min(text.size(), limit));
}

}  // namespace

ReasoningTags TagsOf(ReasoningFormat format) {
  switch (format) {
    case ReasoningFormat::kThinkTags:
      return {"<think>", "</think>"};
    case ReasoningFormat::kHunyuan:
      return {"<think>", "</think>", "<answer>", "</answer>"};
    case ReasoningFormat::kSeed:
      return {"<seed:think>", "</seed:think>"};
    case ReasoningFormat::kMistral:
      return {"[THINK]", "[/THINK]"};
    case ReasoningFormat::kGemma:
      return {"<|channel>thought", "<channel|>"};
    case ReasoningFormat::kCohere:
      return {"<|START_THINKING|>", "<|END_THINKING|>"};
    case ReasoningFormat::kNone:
    case ReasoningFormat::kHarmony:
      break;
  }
  return {};
}

ReasoningParser::Start StartAfterPrompt(ReasoningTags tags, absl::string_view prompt,
                                        bool inside_unless_told) {
  absl::string_view end = absl::StripTrailingAsciiWhitespace(prompt);
  if (tags.open.empty()) return ReasoningParser::Start::kContent;
  absl::ConsumeSuffix(&end, "<seed:cot_budget_reflect>");  // for a reasoning budget of 0
  if (absl::EndsWith(end, tags.open)) return ReasoningParser::Start::kInReasoning;
  if (absl::EndsWith(end, tags.close)) return ReasoningParser::Start::kContent;
  return inside_unless_told ? ReasoningParser::Start::kInReasoning
                            : ReasoningParser::Start::kUnknown;
}

ReasoningParser::ReasoningParser(ReasoningTags tags, Start start,
                                 std::vector<absl::string_view> calls)
    : tags_(tags),
      ends_(std::move(calls)),
      state_(start == Start::kContent ? State::kBeforeContent : State::kStart),
      inside_(start == Start::kInReasoning) {
  ends_.insert(ends_.begin(), tags.close);
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
  } else if (!in_answer_ || absl::StripAsciiWhitespace(buffer_) != tags_.close_answer) {
    content = buffer_;
  }
  buffer_.clear();
  return content;
}

bool ReasoningParser::Step(std::vector<ParsedDelta>* out, std::string* content) {
  if (state_ == State::kStart) {
    const absl::string_view text = absl::StripLeadingAsciiWhitespace(buffer_);
    const bool may_open = buffer_.size() - text.size() <= kMaxSpaceBefore;
    if (may_open && text.size() < tags_.open.size() && absl::StartsWith(tags_.open, text))
      return false;
    state_ = inside_ ? State::kReasoning : State::kBeforeContent;
    if (may_open && absl::StartsWith(text, tags_.open)) {
      buffer_.erase(0, buffer_.size() - text.size() + tags_.open.size());
      state_ = State::kReasoning;
    }
    return true;
  }
  if (state_ == State::kReasoning) return StepReasoning(out);
  if (state_ == State::kBeforeContent) return StepBeforeContent();
  if (may_close_) {
    size_t which = 0, safe = 0;
    const size_t at = FindMarker(buffer_, {tags_.close}, &which, &safe);
    may_close_ = at == std::string::npos;
    content->append(buffer_, 0, may_close_ ? safe : at);
    buffer_.erase(0, may_close_ ? safe : at + tags_.close.size());
    return !may_close_;
  }
  const size_t bytes = in_answer_ ? BytesBeforeEnd(buffer_, tags_.close_answer) : buffer_.size();
  content->append(buffer_, 0, bytes);
  buffer_.erase(0, bytes);
  return false;
}

bool ReasoningParser::StepReasoning(std::vector<ParsedDelta>* out) {
  size_t which = 0, safe = 0;
  const size_t at = FindMarker(buffer_, ends_, &which, &safe);
  const bool ends = at != std::string::npos;
  reasoning_.Write(buffer_.substr(0, ends ? at : safe), out);
  buffer_.erase(0, !ends ? safe : which == 0 ? at + tags_.close.size() : at);
  if (!ends) return false;
  state_ = State::kBeforeContent;
  drops_space_ = true;
  may_close_ = which > 0;
  return true;
}

bool ReasoningParser::StepBeforeContent() {
  if (drops_space_) absl::StripLeadingAsciiWhitespace(&buffer_);
  if (buffer_.empty()) return false;
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(buffer_);
  const size_t space = buffer_.size() - text.size();
  const bool may_open = !tags_.open_answer.empty() && !in_answer_ && space <= kMaxSpaceBefore;
  if (may_open && MayBecome(text, tags_.open_answer)) return false;
  if (may_open && absl::StartsWith(text, tags_.open_answer)) {
    buffer_.erase(0, space + tags_.open_answer.size());
    in_answer_ = drops_space_ = true;
    return true;
  }
  state_ = State::kContent;
  return true;
}

}  // namespace bulkhead
