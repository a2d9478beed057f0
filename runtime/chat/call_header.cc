#include "runtime/chat/call_header.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace bulkhead {
namespace {

using absl::string_view;

constexpr string_view kArgs = "[ARGS]";
constexpr string_view kCallId = "[CALL_ID]";
constexpr string_view kDeepSeekSeparator = "<｜tool▁sep｜>";
constexpr string_view kKimiArguments = "<|tool_call_argument_begin|>";

CallHeader Named(string_view name, string_view id = "") {
  name = absl::StripAsciiWhitespace(name);
  const bool good = std::all_of(name.begin(), name.end(), IsInFunctionName);
  return {.name = std::string(good ? name : ""), .id = std::string(id)};
}

// functions.NAME:INDEX, which is also the call's id: the template of the next turn wants it.
CallHeader ReadKimi(string_view header) {
  header = absl::StripAsciiWhitespace(header);
  if (!absl::ConsumeSuffix(&header, kKimiArguments)) return {};
  const string_view id = absl::StripAsciiWhitespace(header);
  string_view name = id;
  absl::ConsumePrefix(&name, "functions.");
  const size_t colon = name.rfind(':');
  const string_view index = colon == string_view::npos ? "" : name.substr(colon + 1);
  const bool has_index =
      !index.empty() && std::all_of(index.begin(), index.end(), absl::ascii_isdigit);
  return Named(name.substr(0, colon), has_index ? id : "");
}

// "function<sep>NAME\n```json\n" of V3, "NAME<sep>" of V3.1.
CallHeader ReadDeepSeek(string_view header) {
  const size_t separator = header.find(kDeepSeekSeparator);
  if (separator == string_view::npos) return {};
  const string_view behind =
      absl::StripAsciiWhitespace(header.substr(separator + kDeepSeekSeparator.size()));
  return Named(behind.empty() ? header.substr(0, separator) : behind.substr(0, behind.find('\n')));
}

}  // namespace

bool IsInFunctionName(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.'; }

CallHeader ReadCallHeader(ToolFormat format, string_view header) {
  if (format == ToolFormat::kKimiK2) return ReadKimi(header);
  if (format == ToolFormat::kDeepSeek) return ReadDeepSeek(header);
  if (format == ToolFormat::kGemma4 || format == ToolFormat::kFunctionGemma) {
    return Named(absl::ConsumePrefix(&header, "call:") ? header : "");
  }
  if (format == ToolFormat::kHunyuan) return Named(header.substr(0, header.find("```")));
  absl::ConsumeSuffix(&header, kArgs);
  return Named(header.substr(0, header.find(kCallId)));
}

}  // namespace bulkhead
