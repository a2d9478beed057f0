#include "runtime/chat/harmony.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

using absl::string_view;

constexpr string_view kStart = "<|start|>";
constexpr string_view kEnd = "<|end|>";
constexpr string_view kMessage = "<|message|>";
constexpr string_view kChannel = "<|channel|>";
constexpr string_view kCall = "<|call|>";
constexpr string_view kReturn = "<|return|>";
constexpr string_view kFunctions = "functions.";
constexpr size_t kMaxHeaderBytes = 1024;

// Whether a text may begin with a header: special tokens, or a recipient after the prompt's role.
bool MayBeHeader(string_view text) {
  const string_view begin = absl::StripLeadingAsciiWhitespace(text);
  for (const string_view word : {kChannel, kStart, kMessage, string_view("to=")}) {
    if (absl::StartsWith(begin, word) || absl::StartsWith(word, begin)) return true;
  }
  return false;
}

}  // namespace

void HarmonyParser::Append(string_view text, std::vector<ParsedDelta>* out) {
  buffer_.append(text.data(), text.size());
  while (Step(out)) {
  }
}

void HarmonyParser::Finish(std::vector<ParsedDelta>* out) {
  if (state_ == State::kBody) AddBody(buffer_, out);
  // Special tokens of a header that the end cut off are not text.
  if (state_ == State::kHeader && (first_ || closed_) && buffer_.find('<') == std::string::npos) {
    content_.Write(buffer_, out);
  }
  buffer_.clear();
  content_.Flush(out);
}

void HarmonyParser::ReadHeader(string_view header) {
  const size_t channel_at = header.find(kChannel);
  const string_view channel =
      channel_at == string_view::npos
          ? string_view()
          : absl::StripLeadingAsciiWhitespace(header.substr(channel_at + kChannel.size()));
  kind_ = absl::StartsWith(channel, "analysis") ? Kind::kReasoning : Kind::kContent;
  function_.clear();
  const size_t to = header.find("to=");
  if (to == string_view::npos) return;
  string_view recipient = header.substr(to + 3);
  recipient = recipient.substr(0, recipient.find_first_of(" \n<"));
  if (!absl::StartsWith(recipient, kFunctions)) {
    // The model's built-in tools, python and browser: part of its reasoning.
    kind_ = Kind::kReasoning;
    return;
  }
  if (!parse_tool_calls_) {
    kind_ = Kind::kContent;
    return;
  }
  kind_ = Kind::kCall;
  function_ = std::string(recipient.substr(kFunctions.size()));
}

void HarmonyParser::BeginBody(std::vector<ParsedDelta>* out) {
  state_ = State::kBody;
  first_ = false;
  in_call_ = false;
  // Messages of one kind are paragraphs of one text.
  TextWriter& writer = kind_ == Kind::kReasoning ? reasoning_ : content_;
  if (kind_ != Kind::kCall && writer.any()) writer.Write("\n", out);
}

void HarmonyParser::AddBody(string_view text, std::vector<ParsedDelta>* out) {
  if (kind_ == Kind::kReasoning) {
    reasoning_.Write(text, out);
  } else if (kind_ == Kind::kContent) {
    content_.Write(text, out);
  } else {
    AddCall(text, out);
  }
}

void HarmonyParser::AddCall(string_view text, std::vector<ParsedDelta>* out) {
  if (!in_call_) {
    const string_view begin = absl::StripLeadingAsciiWhitespace(text);
    if (begin.empty() || begin[0] != '{' || function_.empty()) {
      content_.Write(text, out);  // it holds white space back
      if (!begin.empty()) kind_ = Kind::kContent;
      return;
    }
    content_.Write(text.substr(0, text.size() - begin.size()), out);  // as if it arrived alone
    content_.BesideCall();
    calls_->BeginCall(function_, "", out);
    in_call_ = true;
    text = begin;
  }
  calls_->AddArguments(text, out);
}

bool HarmonyParser::StepHeader(std::vector<ParsedDelta>* out) {
  if (first_ && !MayBeHeader(buffer_)) {
    kind_ = Kind::kContent;  // a text without channels
    BeginBody(out);
    return true;
  }
  const size_t end =
      string_view(buffer_).substr(0, kMaxHeaderBytes + kMessage.size()).find(kMessage);
  if (end == string_view::npos) {
    if (buffer_.size() <= kMaxHeaderBytes + kMessage.size()) return false;
    kind_ = Kind::kContent;
    BeginBody(out);
    // Else the body would end at once at the marker that began this header.
    const size_t marker = absl::StartsWith(buffer_, kChannel) ? kChannel.size() : 0;
    AddBody(buffer_.substr(0, marker), out);
    buffer_.erase(0, marker);
    return true;
  }
  ReadHeader(string_view(buffer_).substr(0, end));
  buffer_.erase(0, end + kMessage.size());
  BeginBody(out);
  return true;
}

bool HarmonyParser::Step(std::vector<ParsedDelta>* out) {
  if (state_ == State::kHeader) return StepHeader(out);
  size_t which = 0, safe = 0;
  const string_view markers[] = {kEnd, kCall, kReturn, kStart, kChannel};
  const size_t at = FindMarker(buffer_, markers, &which, &safe);
  const bool ends = at != std::string::npos;
  AddBody(buffer_.substr(0, ends ? at : safe), out);
  buffer_.erase(0, ends ? at : safe);
  if (!ends) return false;
  // A channel belongs to the next header.
  if (markers[which] != kChannel) buffer_.erase(0, markers[which].size());
  closed_ = markers[which] != kChannel && markers[which] != kStart;
  state_ = State::kHeader;
  return true;
}

}  // namespace bulkhead
