#include "runtime/chat/tool_calls.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/ordered_json.h"

namespace bulkhead {
namespace {

using absl::string_view;
using nlohmann::ordered_json;

constexpr string_view kToolCall = "<tool_call>";
constexpr string_view kToolCallEnd = "</tool_call>";
constexpr string_view kFunction = "<function=";
constexpr string_view kFunctionEnd = "</function>";
constexpr string_view kPythonTag = "<|python_tag|>";
constexpr string_view kToolCalls = "[TOOL_CALLS]";
constexpr string_view kArgs = "[ARGS]";
constexpr string_view kCallId = "[CALL_ID]";
constexpr string_view kDeepSeekCalls = "<｜tool▁calls▁begin｜>";
constexpr string_view kDeepSeekCallsEnd = "<｜tool▁calls▁end｜>";
constexpr string_view kDeepSeekCall = "<｜tool▁call▁begin｜>";
constexpr string_view kDeepSeekCallEnd = "<｜tool▁call▁end｜>";
constexpr string_view kDeepSeekSeparator = "<｜tool▁sep｜>";
constexpr size_t kMaxHeaderBytes = 512;

// Whether `text` may become `word` with more text.
bool MayBecome(string_view text, string_view word) {
  return text.size() < word.size() && absl::StartsWith(word, text);
}

bool IsFunctionName(string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
  });
}

// Null where there is none.
const ordered_json* MemberOf(const ordered_json* value, const char* name) {
  if (value == nullptr || !value->is_object()) return nullptr;
  const auto found = value->find(name);
  return found == value->end() ? nullptr : &*found;
}

}  // namespace

ToolCallParser::ToolCallParser(ToolFormat format, std::string id_seed, const ordered_json& tools)
    : format_(format),
      id_seed_(std::move(id_seed)),
      state_(format == ToolFormat::kLlama3Json ? State::kStart : State::kContent) {
  if (format != ToolFormat::kQwen3Coder || !tools.is_array()) return;
  for (const ordered_json& tool : tools) {
    const ordered_json* const wrapped = MemberOf(&tool, "function");
    const ordered_json* const function = wrapped != nullptr ? wrapped : &tool;
    const ordered_json* const name = MemberOf(function, "name");
    const ordered_json* const properties = MemberOf(MemberOf(function, "parameters"), "properties");
    if (name == nullptr || !name->is_string()) continue;
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, property] : properties->items()) {
      const ordered_json* const type = MemberOf(&property, "type");
      if (type == nullptr || *type == "string") continue;
      not_strings_.emplace(name->get_ref<const std::string&>(), key);
    }
  }
}

void ToolCallParser::Append(string_view text, std::vector<ParsedDelta>* out) {
  buffer_.append(text.data(), text.size());
  while (Step(out)) {
  }
}

void ToolCallParser::Finish(std::vector<ParsedDelta>* out) {
  while (Step(out)) {
  }
  if (state_ == State::kAfter) {
    content_.Write(buffer_, out);
  } else {
    content_.Write(raw_, out);
    content_.Write(buffer_, out);
  }
  raw_.clear();
  buffer_.clear();
  state_ = State::kContent;
  content_.Flush(out);
}

void ToolCallParser::GiveCall(const std::string& name, const std::string& arguments,
                              std::vector<ParsedDelta>* out) {
  content_.DropSpace();
  out->push_back({.kind = ParsedDelta::Kind::kToolCall,
                  .text = arguments,
                  .call_index = num_calls_,
                  .call_id = ToolCallId(id_seed_, num_calls_, format_ == ToolFormat::kMistral),
                  .call_name = name});
  ++num_calls_;
}

void ToolCallParser::Take(size_t bytes) {
  raw_.append(buffer_, 0, bytes);
  buffer_.erase(0, bytes);
}

size_t ToolCallParser::LeadingSpace() const {
  return buffer_.size() - absl::StripLeadingAsciiWhitespace(buffer_).size();
}

void ToolCallParser::BeginJson() {
  state_ = State::kJson;
  json_.clear();
  span_ = JsonSpan();
}

void ToolCallParser::GiveUp(std::vector<ParsedDelta>* out) {
  content_.Write(raw_, out);
  raw_.clear();
  json_.clear();
  state_ = State::kContent;
}

bool ToolCallParser::Step(std::vector<ParsedDelta>* out) {
  if (raw_.size() > kMaxCallBytes) GiveUp(out);
  switch (state_) {
    case State::kStart: {
      const size_t space = LeadingSpace();
      if (space == buffer_.size() && space <= kMaxHeaderBytes) return false;
      if (space <= kMaxHeaderBytes && buffer_[space] == '{') {
        Take(space);
        BeginJson();
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
    case State::kFunction:
      return StepFunction(out);
    case State::kAfter:
      return StepAfter();
  }
  return false;
}

std::vector<string_view> ToolCallParser::Markers() const {
  switch (format_) {
    case ToolFormat::kHermes:
    case ToolFormat::kQwen3Coder:
      return {kToolCall};
    case ToolFormat::kLlama3Json:
      return {kPythonTag};
    case ToolFormat::kMistral:
      return {kToolCalls};
    case ToolFormat::kDeepSeek:
      return {kDeepSeekCall, kDeepSeekCalls, kDeepSeekCallsEnd};
    default:
      return {};
  }
}

bool ToolCallParser::StepContent(std::vector<ParsedDelta>* out) {
  const std::vector<string_view> markers = Markers();
  size_t which = 0, safe = 0;
  const size_t at = FindMarker(buffer_, markers, &which, &safe);
  content_.Write(buffer_.substr(0, at == std::string::npos ? safe : at), out);
  if (at == std::string::npos) {
    buffer_.erase(0, safe);
    return false;
  }
  buffer_.erase(0, at);
  const size_t bytes = markers[which].size();
  if (markers[which] == kDeepSeekCalls || markers[which] == kDeepSeekCallsEnd) {
    buffer_.erase(0, bytes);  // they say nothing
    content_.DropSpace();
    return true;
  }
  Take(bytes);
  state_ = State::kOpened;
  return true;
}

bool ToolCallParser::StepOpened(std::vector<ParsedDelta>* out) {
  if (format_ == ToolFormat::kDeepSeek) {
    state_ = State::kHeader;
    return true;
  }
  Take(LeadingSpace());
  if (buffer_.empty()) return false;
  const char c = buffer_[0];
  if (c == '{' || (c == '[' && format_ == ToolFormat::kMistral)) {
    name_.clear();
    BeginJson();
    return true;
  }
  if (format_ == ToolFormat::kMistral) {
    state_ = State::kHeader;
    return true;
  }
  if (format_ == ToolFormat::kHermes || format_ == ToolFormat::kQwen3Coder) {
    // Models that write both forms have templates that say so in one word.
    if (MayBecome(buffer_, kFunction)) return false;
    if (absl::StartsWith(buffer_, kFunction)) {
      state_ = State::kFunction;
      searched_ = 0;
      return true;
    }
  }
  GiveUp(out);
  return true;
}

bool ToolCallParser::StepHeader(std::vector<ParsedDelta>* out) {
  const size_t brace = buffer_.find('{');
  if (brace > kMaxHeaderBytes) {
    if (buffer_.size() <= kMaxHeaderBytes) return false;
    GiveUp(out);
    return true;
  }
  string_view header = string_view(buffer_).substr(0, brace);
  if (format_ == ToolFormat::kMistral) {
    absl::ConsumeSuffix(&header, kArgs);
    header = header.substr(0, header.find(kCallId));
  } else {
    const size_t separator = header.find(kDeepSeekSeparator);
    if (separator != string_view::npos) {
      const string_view behind =
          absl::StripAsciiWhitespace(header.substr(separator + kDeepSeekSeparator.size()));
      header = behind.empty() ? header.substr(0, separator) : behind.substr(0, behind.find('\n'));
    } else {
      header = "";
    }
  }
  name_ = std::string(absl::StripAsciiWhitespace(header));
  Take(brace);
  if (IsFunctionName(name_)) {
    BeginJson();
  } else {
    GiveUp(out);
  }
  return true;
}

bool ToolCallParser::StepJson(std::vector<ParsedDelta>* out) {
  for (size_t i = 0; i < buffer_.size(); ++i) {
    json_ += buffer_[i];
    if (!span_.Add(buffer_[i])) {
      // A closing tag outside of a string: the JSON will never be whole.
      const bool closed =
          buffer_[i] == '>' && !span_.in_string() && absl::EndsWith(json_, kToolCallEnd);
      if (!closed && raw_.size() + i < kMaxCallBytes) continue;
      Take(i + 1);
      GiveUp(out);
      return true;
    }
    Take(i + 1);
    if (!EndJson(out)) GiveUp(out);
    return true;
  }
  Take(buffer_.size());
  return false;
}

// The JSON is whole. False if it is no call.
bool ToolCallParser::EndJson(std::vector<ParsedDelta>* out) {
  std::string name, arguments;
  if (!name_.empty()) {
    if (!ParseOrderedJsonObject(json_, "arguments", kCallLimits).ok()) return false;
    GiveCall(name_, json_, out);
  } else if (json_[0] == '{') {
    if (!ReadCall(json_, &name, &arguments)) return false;
    GiveCall(name, arguments, out);
  } else {
    // A list of calls: all or none.
    std::vector<std::pair<std::string, std::string>> calls;
    JsonSpan span;
    size_t begin = 0;
    if (!ordered_json::accept(json_)) return false;
    for (size_t i = 1; i + 1 < json_.size(); ++i) {
      if (begin == 0 && json_[i] == '{') {
        begin = i;
        span = JsonSpan();
      }
      if (begin == 0 || !span.Add(json_[i])) continue;
      if (!ReadCall(string_view(json_).substr(begin, i + 1 - begin), &name, &arguments))
        return false;
      calls.emplace_back(name, arguments);
      begin = 0;
    }
    if (calls.empty()) return false;
    for (const auto& [each, its] : calls) GiveCall(each, its, out);
  }
  raw_.clear();
  json_.clear();
  name_.clear();
  state_ = State::kAfter;
  return true;
}

bool ToolCallParser::StepFunction(std::vector<ParsedDelta>* out) {
  const size_t end = string_view(buffer_).find(kFunctionEnd, searched_);
  searched_ = buffer_.size() - std::min(buffer_.size(), kFunctionEnd.size());
  if (end > kMaxCallBytes) {
    if (buffer_.size() <= kMaxCallBytes) return false;
    GiveUp(out);
    return true;
  }
  string_view body = string_view(buffer_).substr(kFunction.size(), end - kFunction.size());
  const size_t close = body.find('>');
  const std::string name(body.substr(0, std::min(close, body.size())));
  std::string arguments = "{";
  bool good = close != string_view::npos && IsFunctionName(name);
  body.remove_prefix(good ? close + 1 : body.size());
  while (good && !absl::StripAsciiWhitespace(body).empty()) {
    body = absl::StripLeadingAsciiWhitespace(body);
    const size_t key_end = body.find('>');
    const size_t value_end = body.find("</parameter>");
    good = absl::ConsumePrefix(&body, "<parameter=") && key_end != string_view::npos &&
           value_end != string_view::npos && key_end < value_end;
    if (!good) break;
    const size_t taken = string_view("<parameter=").size();
    const std::string key(body.substr(0, key_end - taken));
    string_view value = body.substr(key_end + 1 - taken, value_end - key_end - 1);
    absl::ConsumePrefix(&value, "\n");
    absl::ConsumeSuffix(&value, "\n");
    absl::StrAppend(&arguments, arguments.size() > 1 ? ", " : "", ordered_json(key).dump(), ": ",
                    ParameterJson(name, key, std::string(value)));
    body.remove_prefix(value_end - taken + string_view("</parameter>").size());
  }
  Take(end + kFunctionEnd.size());
  if (!good) {
    GiveUp(out);
    return true;
  }
  GiveCall(name, arguments + "}", out);
  raw_.clear();
  state_ = State::kAfter;
  return true;
}

// A value as its schema has it: strings are quoted, other types must be JSON.
std::string ToolCallParser::ParameterJson(const std::string& function, const std::string& key,
                                          const std::string& value) const {
  if (not_strings_.contains(std::pair(function, key)) && ordered_json::accept(value)) return value;
  return ordered_json(value).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

bool ToolCallParser::StepAfter() {
  buffer_.erase(0, LeadingSpace());
  if (buffer_.empty()) return false;
  std::vector<string_view> ends;
  if (format_ == ToolFormat::kHermes || format_ == ToolFormat::kQwen3Coder) ends = {kToolCallEnd};
  if (format_ == ToolFormat::kLlama3Json) ends = {";"};
  if (format_ == ToolFormat::kDeepSeek) ends = {"```", kDeepSeekCallEnd};
  for (const string_view end : ends) {
    if (MayBecome(buffer_, end)) return false;
    if (!absl::StartsWith(buffer_, end)) continue;
    buffer_.erase(0, end.size());
    return true;
  }
  if (format_ == ToolFormat::kLlama3Json && buffer_[0] == '{') {
    BeginJson();
  } else {
    state_ = State::kContent;
  }
  return true;
}

}  // namespace bulkhead
