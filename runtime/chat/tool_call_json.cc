// The JSON of calls, and their ids.
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/ordered_json.h"
#include "runtime/chat/tool_calls.h"

namespace bulkhead {
namespace {

using absl::string_view;
using nlohmann::ordered_json;

// Where the raw text of each field of a valid JSON object is.
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

bool JsonSpan::Add(char c) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
    }
    return false;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  return (c == '}' || c == ']') && --depth_ == 0;
}

bool ToolCallParser::ReadCall(string_view json, std::string* name, std::string* arguments) {
  const absl::StatusOr<ordered_json> call = ParseOrderedJsonObject(json, "call", kCallLimits);
  if (!call.ok() || !call->contains("name") || !(*call)["name"].is_string()) return false;
  *name = (*call)["name"].get<std::string>();
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
    // As the model wrote it.
    for (const auto& [field, raw] : Fields(json)) {
      if (field == absl::StrCat("\"", key, "\"")) *arguments = std::string(raw);
    }
    return true;
  }
  return true;
}

}  // namespace bulkhead
