#include "runtime/chat/reasoning.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace bulkhead {
namespace {

constexpr size_t kMaxSpaceBefore = 1024;  // what is behind more of it is not looked at for the tag

}  // namespace

ReasoningTags TagsOf(ReasoningFormat format) {
  switch (format) {
    case ReasoningFormat::kThinkTags:
      return {"<think>", "</think>"};
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
  absl::ConsumeSuffix(&end, "<seed:cot_budget_reflect>");  // of a budget of none
  if (absl::EndsWith(end, tags.open)) return ReasoningParser::Start::kInReasoning;
  if (absl::EndsWith(end, tags.close)) return ReasoningParser::Start::kContent;
  return inside_unless_told ? ReasoningParser::Start::kInReasoning
                            : ReasoningParser::Start::kUnknown;
}

ReasoningParser::ReasoningParser(ReasoningTags tags, Start start)
    : tags_(tags),
      state_(start == Start::kContent ? State::kContent : State::kStart),
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
    if (may_open && text.size() < tags_.open.size() && absl::StartsWith(tags_.open, text))
      return false;
    state_ = inside_ ? State::kReasoning : State::kContent;
    if (may_open && absl::StartsWith(text, tags_.open)) {
      buffer_.erase(0, buffer_.size() - text.size() + tags_.open.size());
      state_ = State::kReasoning;
    }
    return true;
  }
  if (state_ == State::kReasoning) {
    size_t which = 0, safe = 0;
    const size_t at = FindMarker(buffer_, {tags_.close}, &which, &safe);
    const bool ends = at != std::string::npos;
    reasoning_.Write(buffer_.substr(0, ends ? at : safe), out);
    buffer_.erase(0, ends ? at + tags_.close.size() : safe);
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
