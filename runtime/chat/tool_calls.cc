#include "runtime/chat/tool_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "runtime/chat/call_header.h"

namespace bulkhead {
namespace {

using absl::string_view;
using nlohmann::ordered_json;

constexpr size_t kMaxHeaderBytes = 512;

// Bytes of the separator between calls in Python's form.
size_t SeparatorBytes(string_view text) {
  return std::min(text.find_first_not_of(" \t\r\n,"), text.size());
}

}  // namespace

ToolCallParser::ToolCallParser(ToolFormat format, std::string id_seed, const ordered_json& tools)
    : format_(format),
      markers_(MarkersOf(format)),
      id_seed_(std::move(id_seed)),
      types_(tools),
      state_(format == ToolFormat::kLlama3Json || format == ToolFormat::kPythonic
                 ? State::kStart
                 : State::kContent) {}

void ToolCallParser::Append(string_view text, std::vector<ParsedDelta>* out) {
  buffer_.append(text.data(), text.size());
  while (Step(out)) {
  }
}

void ToolCallParser::Finish(std::vector<ParsedDelta>* out) {
  while (Step(out)) {
  }
  // After a call there may be the beginning of the end marker.
  const bool in_python_list = is_python() && state_ == State::kList && raw_.empty();
  const string_view behind =
      string_view(buffer_).substr(in_python_list ? SeparatorBytes(buffer_) : 0);
  const bool may_end = (state_ == State::kAfter || in_python_list) &&
                       std::any_of(markers_.ends.begin(), markers_.ends.end(),
                                   [&](string_view end) { return MayBecome(behind, end); });
  if (in_call_) {
    std::string rest;
    if (state_ == State::kTagged && python_.has_value()) python_->Finish(buffer_, &rest);
    if (state_ == State::kTagged && gemma_.has_value()) gemma_->Finish(buffer_, &rest);
    if (state_ == State::kTagged && tagged_.has_value()) tagged_->Finish(buffer_, &rest);
    AddArguments(rest, out);
  } else if (!may_end) {
    content_.Write(raw_, out);
    content_.Write(buffer_, out);
  }
  raw_.clear();
  buffer_.clear();
  in_call_ = false;
  state_ = State::kContent;
  content_.Flush(out);
}

void ToolCallParser::BeginCall(const std::string& name, const std::string& id,
                               std::vector<ParsedDelta>* out) {
  content_.BesideCall();
  if (num_calls_ > 0) were_whole_.push_back(arguments_.is_whole());
  arguments_ = JsonChecker();
  const bool is_short = format_ == ToolFormat::kMistral;
  out->push_back({.kind = ParsedDelta::Kind::kToolCall,
                  .text = "",
                  .call_index = num_calls_,
                  .call_id = id.empty() ? ToolCallId(id_seed_, num_calls_, is_short) : id,
                  .call_name = name});
  ++num_calls_;
  in_call_ = true;
  raw_.clear();
  json_.clear();
}

void ToolCallParser::AddArguments(string_view piece, std::vector<ParsedDelta>* out) {
  if (piece.empty()) return;
  arguments_.Add(piece);
  if (out->empty() || out->back().kind != ParsedDelta::Kind::kToolCall ||
      !out->back().call_name.empty()) {
    out->push_back({.kind = ParsedDelta::Kind::kToolCall,
                    .text = "",
                    .call_index = num_calls_ - 1,
                    .call_id = "",
                    .call_name = ""});
  }
  out->back().text.append(piece.data(), piece.size());
}

void ToolCallParser::EndCall() {
  in_call_ = false;
  raw_.clear();
  json_.clear();
  name_.clear();
  state_ = in_list_ ? State::kList : State::kAfter;
}

void ToolCallParser::Take(size_t bytes) {
  raw_.append(buffer_, 0, bytes);
  buffer_.erase(0, bytes);
}

size_t ToolCallParser::LeadingSpace() const {
  return buffer_.size() - absl::StripLeadingAsciiWhitespace(buffer_).size();
}

void ToolCallParser::BeginJson(CallJsonReader::Shape shape) {
  state_ = State::kJson;
  json_.clear();
  reader_ = CallJsonReader(shape, name_key());
}

void ToolCallParser::GiveUp(std::vector<ParsedDelta>* out) {
  content_.Write(raw_, out);
  raw_.clear();
  json_.clear();
  name_.clear();
  in_list_ = false;
  state_ = State::kContent;
}

bool ToolCallParser::Step(std::vector<ParsedDelta>* out) {
  if (raw_.size() > kMaxCallBytes) GiveUp(out);
  switch (state_) {
    case State::kStart: {
      const size_t space = LeadingSpace();
      if (space == buffer_.size() && space <= kMaxHeaderBytes) return false;
      if (space <= kMaxHeaderBytes && is_python() && buffer_[space] == '[') {
        Take(space);
        state_ = State::kOpened;
      } else if (space <= kMaxHeaderBytes && !is_python() && buffer_[space] == '{') {
        Take(space);
        BeginJson(CallJsonReader::Shape::kCall);
      } else {
        state_ = State::kContent;
      }
      return true;
    }
    case State::kContent:
      return StepContent(out);
    case State::kOpened:
      return StepOpened(out);
    case State::kHeader:
      return StepHeader(out);
    case State::kJson:
      return StepJson(out);
    case State::kList:
      return StepList(out);
    case State::kName:
      return StepName(out);
    case State::kTagged:
      return StepTagged(out);
    case State::kAfter:
      return StepAfter(out);
  }
  return false;
}

bool ToolCallParser::StepContent(std::vector<ParsedDelta>* out) {
  size_t which = 0, safe = 0;
  const size_t at = FindMarker(buffer_, markers_.markers, &which, &safe);
  content_.Write(buffer_.substr(0, at == std::string::npos ? safe : at), out);
  if (at == std::string::npos) {
    buffer_.erase(0, safe);
    return false;
  }
  buffer_.erase(0, at);
  const size_t bytes = markers_.markers[which].size();
  if (which >= markers_.num_opening) {
    buffer_.erase(0, bytes);  // they have no meaning
    content_.BesideCall();
    return true;
  }
  Take(bytes - (absl::EndsWith(markers_.markers[which], "[") ? 1 : 0));
  state_ = State::kOpened;
  return true;
}

bool ToolCallParser::StepOpened(std::vector<ParsedDelta>* out) {
  if (markers_.before == BeforeCall::kHeader) {
    state_ = State::kHeader;
    return true;
  }
  Take(LeadingSpace());
  if (buffer_.empty()) return false;
  const char c = buffer_[0];
  if (is_python()) {
    if (c == '[' && markers_.list_end == "]") Take(1);
    in_list_ = c == '[' || markers_.list_end != "]";
    state_ = State::kList;
    if (!in_list_) GiveUp(out);
    return true;
  }
  if (c == '[' && markers_.may_be_list) {
    Take(1);
    in_list_ = true;
    state_ = State::kList;
    return true;
  }
  if (c == '{') {
    name_.clear();
    BeginJson(CallJsonReader::Shape::kCall);
    return true;
  }
  if (!markers_.inner.empty() && MayBecome(buffer_, markers_.inner)) return false;
  if (!markers_.inner.empty() && absl::StartsWith(buffer_, markers_.inner)) {
    Take(markers_.inner.size());
    return true;
  }
  if (markers_.before == BeforeCall::kMayBeHeader && absl::StrContains(raw_, markers_.inner)) {
    state_ = State::kHeader;
    return true;
  }
  // The templates of models that write both forms say so in one word.
  if (markers_.functions != nullptr && MayBecome(buffer_, markers_.functions->open)) return false;
  if (markers_.functions != nullptr && absl::StartsWith(buffer_, markers_.functions->open)) {
    state_ = State::kName;
  } else {
    GiveUp(out);
  }
  return true;
}

bool ToolCallParser::StepHeader(std::vector<ParsedDelta>* out) {
  const size_t brace = buffer_.find('{');
  if (brace > kMaxHeaderBytes) {
    if (buffer_.size() <= kMaxHeaderBytes) return false;
    GiveUp(out);
    return true;
  }
  CallHeader header = ReadCallHeader(format_, string_view(buffer_).substr(0, brace));
  name_ = std::move(header.name);
  id_ = std::move(header.id);
  Take(brace);
  if (name_.empty()) {
    GiveUp(out);
  } else if (!markers_.quote.empty()) {
    gemma_.emplace(markers_.quote);
    state_ = State::kTagged;
  } else {
    BeginJson(CallJsonReader::Shape::kArguments);
  }
  return true;
}

bool ToolCallParser::StepJson(std::vector<ParsedDelta>* out) {
  const bool whole_is_arguments = !name_.empty();
  std::string arguments;
  CallJsonReader::Step step;
  size_t taken = 0;
  for (; taken < buffer_.size() && !step.ends; ++taken) {
    const char c = buffer_[taken];
    step = reader_.Add(c);
    if (!in_call_ && raw_.size() + taken >= kMaxCallBytes) step = {.is_foreign = true};
    if (step.is_foreign) break;
    if (step.is_argument && !in_call_) {
      BeginCall(whole_is_arguments ? name_ : reader_.name(), id_, out);
    }
    if (step.is_argument) arguments += c;
    if (!in_call_) json_ += c;
  }
  AddArguments(arguments, out);
  const bool was_given = in_call_;
  if (was_given) {
    buffer_.erase(0, taken);
  } else {
    Take(taken);
  }
  if (!step.ends && !step.is_foreign) return false;
  std::string name;
  // Without a marker any object could be meant, such as {"name": "Ann", "age": 3}.
  const bool is_marked =
      format_ != ToolFormat::kLlama3Json || absl::StartsWith(raw_, "<|python_") || num_calls_ > 0;
  if (!was_given && step.ends && ReadCall(json_, name_key(), is_marked, &name, &arguments)) {
    BeginCall(name, "", out);
    AddArguments(arguments, out);
  } else if (!was_given) {
    GiveUp(out);
    return true;
  }
  EndCall();
  if (step.is_foreign) in_list_ = false;
  if (step.is_foreign && state_ == State::kList) state_ = State::kContent;
  return true;
}

// Text between calls is taken with the next call; if there is none, the text is content.
bool ToolCallParser::StepPythonList(std::vector<ParsedDelta>* out) {
  const size_t begin = SeparatorBytes(buffer_);
  const string_view rest = string_view(buffer_).substr(begin);
  const bool is_first = !raw_.empty();
  if (begin <= kMaxHeaderBytes && MayBecome(rest, markers_.list_end)) return false;
  if (begin <= kMaxHeaderBytes && absl::StartsWith(rest, markers_.list_end) && !is_first) {
    buffer_.erase(0, begin + markers_.list_end.size());
    in_list_ = false;
    state_ = State::kAfter;
  } else if (begin <= kMaxHeaderBytes && (absl::ascii_isalpha(rest[0]) || rest[0] == '_')) {
    Take(begin);
    state_ = State::kName;
  } else {
    GiveUp(out);
  }
  return true;
}

bool ToolCallParser::StepList(std::vector<ParsedDelta>* out) {
  if (is_python()) return StepPythonList(out);
  if (buffer_.empty()) return false;
  const char c = buffer_[0];
  if (c == '{') {
    BeginJson(CallJsonReader::Shape::kCall);
  } else if (!absl::ascii_isspace(c) && c != ',' && (c != ']' || !raw_.empty())) {
    GiveUp(out);
  } else if (raw_.empty()) {  // after a call
    buffer_.erase(0, 1);
    if (c == ']') {
      in_list_ = false;
      state_ = State::kAfter;
    }
  } else {
    Take(1);
  }
  return true;
}

bool ToolCallParser::StepName(std::vector<ParsedDelta>* out) {
  const FunctionTags& tags = *markers_.functions;
  const size_t begin = tags.open.size();
  size_t end = begin;
  while (end < buffer_.size() && end <= kMaxHeaderBytes && IsInFunctionName(buffer_[end])) ++end;
  const string_view rest = string_view(buffer_).substr(end);
  if ((rest.empty() || MayBecome(rest, tags.close)) && end <= kMaxHeaderBytes) return false;
  name_ = buffer_.substr(begin, end - begin);
  if (name_.empty() || end > kMaxHeaderBytes || !absl::StartsWith(rest, tags.close)) {
    GiveUp(out);
    return true;
  }
  Take(end + tags.close.size());
  if (is_python()) {
    python_.emplace(markers_.list_end == "]" ? ",]" : "");
  } else {
    tagged_.emplace(tags.arguments, name_, &types_);
  }
  state_ = State::kTagged;
  return true;
}

bool ToolCallParser::StepTagged(std::vector<ParsedDelta>* out) {
  std::string arguments;
  const TaggedArguments::Result result = python_.has_value()  ? python_->Read(&buffer_, &arguments)
                                         : gemma_.has_value() ? gemma_->Read(&buffer_, &arguments)
                                                              : tagged_->Read(&buffer_, &arguments);
  if (!in_call_ && !arguments.empty()) BeginCall(name_, "", out);
  AddArguments(arguments, out);
  if (result == TaggedArguments::Result::kMore) return false;
  if (!in_call_) {
    GiveUp(out);
    return true;
  }
  if (result == TaggedArguments::Result::kForeign) in_list_ = false;
  EndCall();
  return true;
}

bool ToolCallParser::StepAfter(std::vector<ParsedDelta>* out) {
  const size_t space = LeadingSpace();
  content_.Write(string_view(buffer_).substr(0, space), out);
  buffer_.erase(0, space);
  if (buffer_.empty()) return false;
  for (const string_view end : markers_.ends) {
    if (MayBecome(buffer_, end)) return false;
    if (!absl::StartsWith(buffer_, end)) continue;
    buffer_.erase(0, end.size());
    content_.BesideCall();
    return true;
  }
  const bool may_go_on = format_ == ToolFormat::kMiniMaxM2;  // several calls between its markers
  if (may_go_on && MayBecome(buffer_, markers_.functions->open)) return false;
  if (may_go_on && absl::StartsWith(buffer_, markers_.functions->open)) {
    state_ = State::kName;
  } else if (format_ == ToolFormat::kLlama3Json && buffer_[0] == '{') {
    BeginJson(CallJsonReader::Shape::kCall);
  } else {
    state_ = State::kContent;
  }
  return true;
}

}  // namespace bulkhead
