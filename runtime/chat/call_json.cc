#include "runtime/chat/call_json.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/ordered_json.h"

namespace bulkhead {
namespace {

using absl::string_view;
using nlohmann::ordered_json;

// Maximum bytes of a number: more than any double needs.
constexpr size_t kMaxScalarBytes = 1024;

// The name and raw text of each field of a valid JSON object.
std::vector<std::pair<string_view, string_view>> Fields(string_view object) {
  std::vector<std::pair<string_view, string_view>> fields;
  int depth = 0;
  bool in_string = false;
  size_t begin = std::string::npos, colon = std::string::npos;
  for (size_t i = 0; i < object.size(); ++i) {
    const char c = object[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') ++depth;
    if (depth == 1 && c == ':') colon = i;
    if (depth == 1 && (c == ',' || c == '}' || c == '{')) {
      if (c != '{' && colon != std::string::npos) {
        fields.emplace_back(absl::StripAsciiWhitespace(object.substr(begin, colon - begin)),
                            absl::StripAsciiWhitespace(object.substr(colon + 1, i - colon - 1)));
      }
      begin = i + 1;
      colon = std::string::npos;
    }
    if (c == '}' || c == ']') --depth;
  }
  return fields;
}

uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

std::string ToolCallId(string_view seed, int index, bool short_form) {
  uint64_t state = 0xCBF29CE484222325u + static_cast<uint64_t>(index);
  for (const char c : seed) state = (state ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  static constexpr string_view kAlphabet =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string id = short_form ? "" : "call_";
  for (int i = 0; i < (short_form ? 9 : 24); ++i) {
    state += 0x9E3779B97F4A7C15u;
    id += kAlphabet[Mixed(state) % kAlphabet.size()];
  }
  return id;
}

void AppendJsonCharacters(string_view text, std::string* out) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const size_t which = string_view("\"\\\n\t\r\b\f").find(c);
    if (which != string_view::npos) {
      *out += '\\';
      *out += "\"\\ntrbf"[which];
    } else if (byte < 0x20) {
      absl::StrAppendFormat(out, "\\u%04x", byte);
    } else {
      *out += c;
    }
  }
}

void JsonChecker::Add(string_view text) {
  for (const char c : text) {
    if (next_ == Next::kBroken) return;
    if (in_string_) {
      next_ = BehindCharacter(c);
    } else if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '+' ||
               c == '.') {
      scalar_ += c;
      if (!wants_value() || scalar_.size() > kMaxScalarBytes) next_ = Next::kBroken;
    } else {
      const std::string scalar = std::exchange(scalar_, "");
      if (!scalar.empty()) {
        next_ = ordered_json::accept(scalar) ? Next::kCommaOrEnd : Next::kBroken;
      }
      if (next_ != Next::kBroken) next_ = BehindPunctuation(c);
    }
  }
}

bool JsonChecker::is_whole() const {
  if (in_string_ || !levels_.empty() || next_ == Next::kBroken) return false;
  return scalar_.empty() ? next_ == Next::kCommaOrEnd : ordered_json::accept(scalar_);
}

JsonChecker::Next JsonChecker::BehindCharacter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (hex_left_ > 0) {
    --hex_left_;
    return absl::ascii_isxdigit(byte) ? next_ : Next::kBroken;
  }
  if (std::exchange(escaped_, false)) {
    if (c == 'u') hex_left_ = 4;
    return absl::StrContains("\"\\/bfnrtu", c) ? next_ : Next::kBroken;
  }
  escaped_ = c == '\\';
  in_string_ = c != '"';
  return byte < 0x20 ? Next::kBroken : next_;
}

JsonChecker::Next JsonChecker::BehindPunctuation(char c) {
  if (c == ' ' || c == '\n' || c == '\r' || c == '\t') return next_;
  const bool closes_empty =
      (c == '}' && next_ == Next::kKeyOrEnd) || (c == ']' && next_ == Next::kValueOrEnd);
  if (c == '"') {
    in_string_ = true;
    if (wants_value()) return Next::kCommaOrEnd;
    if (next_ == Next::kKey || next_ == Next::kKeyOrEnd) return Next::kColon;
  } else if ((c == '{' || c == '[') && wants_value()) {
    levels_.push_back(c == '{');
    return c == '{' ? Next::kKeyOrEnd : Next::kValueOrEnd;
  } else if (c == ':' && next_ == Next::kColon) {
    return Next::kValue;
  } else if (levels_.empty() || (next_ != Next::kCommaOrEnd && !closes_empty)) {
    return Next::kBroken;
  } else if (c == ',' && next_ == Next::kCommaOrEnd) {
    return levels_.back() ? Next::kKey : Next::kValue;
  } else if ((c == '}' || c == ']') && levels_.back() == (c == '}')) {
    levels_.pop_back();
    return Next::kCommaOrEnd;
  }
  return Next::kBroken;
}

// Whether `c`, outside strings, cannot occur in JSON.
bool CallJsonReader::IsForeign(char c) const {
  if (absl::ascii_isspace(c)) return false;
  if (tail_ == Tail::kBegun) return c != '}' && c != ',';
  return !absl::ascii_isalnum(c) && string_view("{}[]:,\"+-.").find(c) == string_view::npos;
}

void CallJsonReader::AddToString(char c) {
  if (escaped_) {
    escaped_ = false;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    in_string_ = false;
  }
  if (depth_ != 1 || shape_ != Shape::kCall || tail_ != Tail::kNone) return;
  string_ += c;
  if (in_string_ || !is_value_ || key_ != name_key_ || !name_.empty()) return;
  const auto name = ordered_json::parse(string_, nullptr, /*allow_exceptions=*/false);
  if (name.is_string()) name_ = name.get<std::string>();
}

void CallJsonReader::Open(char c, Step* step) {
  const bool is_whole = depth_ == 0 && shape_ == Shape::kArguments;
  const bool is_field = depth_ == 1 && c == '{' && is_value_ && !name_.empty() &&
                        tail_ == Tail::kNone &&
                        (key_ == "\"arguments\"" || key_ == "\"parameters\"");
  in_arguments_ = in_arguments_ || is_whole || is_field;
  step->is_argument = in_arguments_;
  ++depth_;
}

void CallJsonReader::Close(Step* step) {
  --depth_;
  step->ends = depth_ == 0;
  if (!in_arguments_ || depth_ > (shape_ == Shape::kCall ? 1 : 0)) return;
  in_arguments_ = false;
  tail_ = Tail::kBegun;
}

CallJsonReader::Step CallJsonReader::Add(char c) {
  Step step{.is_argument = in_arguments_};
  if (in_string_) {
    AddToString(c);
    return step;
  }
  if (IsForeign(c)) return {.is_foreign = true};
  const bool is_own = depth_ == 1 && shape_ == Shape::kCall && tail_ == Tail::kNone;
  switch (c) {
    case '"':
      in_string_ = true;
      if (is_own) string_ = c;
      break;
    case ':':
      if (is_own) key_ = string_;
      is_value_ = is_value_ || is_own;
      break;
    case ',':
      if (is_own) is_value_ = false;
      if (tail_ == Tail::kBegun) tail_ = Tail::kOtherFields;
      break;
    case '{':
    case '[':
      Open(c, &step);
      break;
    case '}':
    case ']':
      Close(&step);
      break;
    default:
      break;
  }
  return step;
}

bool ReadCall(string_view json, const std::string& name_key, bool may_lack_arguments,
              std::string* name, std::string* arguments) {
  const absl::StatusOr<ordered_json> call = ParseOrderedJsonObject(json, "call", kCallLimits);
  if (!call.ok() || !call->contains(name_key) || !(*call)[name_key].is_string()) return false;
  *name = (*call)[name_key].get<std::string>();
  if (name->empty()) return false;
  *arguments = "{}";
  for (const char* key : {"arguments", "parameters"}) {
    if (!call->contains(key)) continue;
    const ordered_json& value = (*call)[key];
    if (value.is_string()) {
      *arguments = value.get<std::string>();
      return ordered_json::accept(*arguments);
    }
    if (value.is_null()) return true;
    if (!value.is_object()) return false;
    *arguments = value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    // The arguments as the model wrote them.
    for (const auto& [field, raw] : Fields(json)) {
      if (field == absl::StrCat("\"", key, "\"")) *arguments = std::string(raw);
    }
    return true;
  }
  return may_lack_arguments;
}

}  // namespace bulkhead
