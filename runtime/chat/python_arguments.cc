#include "runtime/chat/python_arguments.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "runtime/chat/call_header.h"
#include "runtime/chat/call_json.h"
#include "runtime/chat/output_delta.h"

namespace bulkhead {
namespace {

using absl::string_view;
using Result = TaggedArguments::Result;

constexpr size_t kMaxTokenBytes = 1024;  // a key with its value's first token
constexpr size_t kLookahead = 4;         // enough to see that a token has ended

bool IsInName(char c) { return IsInFunctionName(c) || (c & 0x80) != 0; }

// Bytes at the front for which `is_in` holds.
template <typename Predicate>
size_t BytesOf(string_view text, Predicate is_in) {
  return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_in) - text.begin());
}

// The JSON of a number or a word; empty if it is not a literal.
std::string ScalarAsJson(string_view word) {
  if (word == "True" || word == "False") return absl::AsciiStrToLower(word);
  if (word == "None") return "null";
  string_view digits = word;
  const string_view sign = absl::ConsumePrefix(&digits, "-") ? "-" : "";
  if (sign.empty()) absl::ConsumePrefix(&digits, "+");
  std::string json(word);
  if (uint64_t value = 0; absl::StartsWithIgnoreCase(digits, "0x")) {
    json = absl::SimpleHexAtoi(digits, &value) ? absl::StrCat(sign, value) : "";
  } else if (!digits.empty() && (absl::ascii_isdigit(digits[0]) || digits[0] == '.')) {
    json = absl::StrCat(sign, digits[0] == '.' ? "0" : "", digits, digits.back() == '.' ? "0" : "");
    json = absl::StrReplaceAll(json, {{"_", ""}});
  }
  return nlohmann::json::accept(json) ? json : "";
}

// The backslash at the front with what belongs to it; false if it needs more text.
bool ReadEscape(string_view* text, std::string* out) {
  if (text->size() < 2) return false;
  const char c = (*text)[1];
  static constexpr string_view kNames = "\\'\"abfnrtv";
  if (const size_t which = kNames.find(c); which != string_view::npos || c == '\n') {
    if (c != '\n') AppendJsonCharacters(string_view("\\'\"\a\b\f\n\r\t\v").substr(which, 1), out);
    text->remove_prefix(2);
    return true;
  }
  const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  const string_view hex = text->substr(2, digits);
  const bool is_hex = digits > 0 && std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit);
  if (is_hex && hex.size() < digits) return false;
  uint32_t code = 0;
  if (is_hex && absl::SimpleHexAtoi(hex, &code) && code <= 0x10FFFF) {
    // Halves of a surrogate pair unchanged: two of them are also a pair in JSON.
    if (code > 0xFFFF) absl::StrAppendFormat(out, "\\u%04x", 0xD7C0 + (code >> 10));
    absl::StrAppendFormat(out, "\\u%04x", code > 0xFFFF ? 0xDC00 + (code & 0x3FF) : code);
    text->remove_prefix(2 + digits);
  } else {  // not a Python escape: a plain backslash
    *out += "\\\\";
    text->remove_prefix(1);
  }
  return true;
}

}  // namespace

Result PythonArguments::Read(std::string* buffer, std::string* out) {
  string_view text = *buffer;
  Token token = Token::kTaken;
  while (token == Token::kTaken && !levels_.empty()) {
    if (!quote_.empty()) {
      token = ReadString(&text, out);
      continue;
    }
    if (is_given_) text = absl::StripLeadingAsciiWhitespace(text);
    string_view rest = text;
    std::string json;
    token = ReadToken(&rest, &json);
    const size_t behind = token == Token::kTaken ? rest.size() : kLookahead;
    if (text.size() > kMaxTokenBytes + behind) token = Token::kForeign;
    if (token != Token::kTaken) break;
    *out += json;
    text = rest;
    is_given_ = true;
  }
  buffer->erase(0, buffer->size() - text.size());
  if (token == Token::kForeign) return Result::kForeign;
  return levels_.empty() ? Result::kEnd : Result::kMore;
}

PythonArguments::Token PythonArguments::ReadToken(string_view* text, std::string* out) {
  *text = absl::StripLeadingAsciiWhitespace(*text);
  if (text->empty()) return Token::kMore;
  const char c = text->front();
  if (absl::StrContains(")]}", c)) return Close(text, out);
  if (is_behind_value_) {
    if (c != ',' && (c != ':' || levels_.back() != '{')) return Token::kForeign;
    text->remove_prefix(1);
    if (c == ':') *out += ": ";
    if (levels_.back() == '(') levels_.back() = 't';
    is_behind_comma_ = c == ',';
    is_behind_value_ = false;
    return Token::kTaken;
  }
  if (levels_.size() > 1) {
    if (is_behind_comma_) *out += ", ";
    return ReadValue(text, out);
  }
  // A key is only of use with the beginning of its value.
  const size_t end = BytesOf(*text, IsInName);
  string_view rest = absl::StripLeadingAsciiWhitespace(text->substr(end));
  if (rest.empty()) return Token::kMore;
  if (end == 0 || !absl::ConsumePrefix(&rest, "=")) return Token::kForeign;
  absl::StrAppend(out, is_behind_comma_ ? ", " : "{", "\"");
  AppendJsonCharacters(text->substr(0, end), out);
  *out += "\": ";
  *text = absl::StripLeadingAsciiWhitespace(rest);
  return text->empty() ? Token::kMore : ReadValue(text, out);
}

// Reads a value; of a string or a container only its beginning.
PythonArguments::Token PythonArguments::ReadValue(string_view* text, std::string* out) {
  const char c = text->front();
  if (c == '\'' || c == '"') {
    const std::string three(3, c);
    if (MayBecome(*text, three)) return Token::kMore;
    quote_ = absl::StartsWith(*text, three) ? three : std::string(1, c);
    text->remove_prefix(quote_.size());
    *out += '"';
  } else if (absl::StrContains("[({", c)) {
    if (levels_.size() > static_cast<size_t>(kCallLimits.max_depth)) return Token::kForeign;
    levels_ += c;
    text->remove_prefix(1);
    *out += c == '{' ? '{' : '[';
  } else {
    const auto is_in_word = [](char each) { return IsInName(each) || each == '+'; };
    const size_t end = BytesOf(*text, is_in_word);
    if (end == text->size()) return Token::kMore;
    const std::string json = ScalarAsJson(text->substr(0, end));
    if (json.empty()) return Token::kForeign;
    const bool is_key = levels_.back() == '{' && (*text)[end] == ':';
    absl::StrAppend(out, is_key ? "\"" : "", json, is_key ? "\"" : "");
    text->remove_prefix(end);
    is_behind_value_ = true;
  }
  is_behind_comma_ = false;
  return Token::kTaken;
}

PythonArguments::Token PythonArguments::Close(string_view* text, std::string* out) {
  const char open = levels_.back();
  // (1) is 1, but [ was already emitted for it.
  if (text->front() != (open == '[' ? ']' : open == '{' ? '}' : ')') || open == '(') {
    return Token::kForeign;
  }
  if (!is_given_) {
    const string_view rest = absl::StripLeadingAsciiWhitespace(text->substr(1, kLookahead - 1));
    if (!behind_.empty() && rest.empty()) {
      return text->size() < kLookahead ? Token::kMore : Token::kForeign;
    }
    if (!behind_.empty() && !absl::StrContains(behind_, rest[0])) return Token::kForeign;
    *out += '{';
  }
  text->remove_prefix(1);
  *out += open == '[' || open == 't' ? ']' : '}';
  levels_.pop_back();
  is_behind_value_ = true;
  is_behind_comma_ = false;
  return Token::kTaken;
}

PythonArguments::Token PythonArguments::ReadString(string_view* text, std::string* out) {
  while (true) {
    const size_t end = std::min(text->find_first_of(std::string{quote_[0], '\\'}), text->size());
    AppendJsonCharacters(text->substr(0, end), out);
    text->remove_prefix(end);
    if (text->empty() || MayBecome(*text, quote_)) return Token::kMore;
    if (absl::ConsumePrefix(text, quote_)) break;
    if (text->front() == quote_[0]) {
      AppendJsonCharacters(text->substr(0, 1), out);
      text->remove_prefix(1);
    } else if (!ReadEscape(text, out)) {
      return Token::kMore;
    }
  }
  *out += '"';
  quote_.clear();
  is_behind_value_ = true;
  return Token::kTaken;
}

void PythonArguments::Finish(string_view buffer, std::string* out) {
  if (!quote_.empty()) return AppendJsonCharacters(buffer, out);
  std::string rest = absl::StrCat(buffer, " ");  // the space ends a number
  Read(&rest, out);
}

std::string PythonLiteralAsJson(string_view text) {
  constexpr string_view kBegin = "{\"v\": ", kEnd = "}";
  if (text.empty() || !absl::StrContains("[{", text[0])) return "";
  PythonArguments arguments("");
  std::string buffer = absl::StrCat("v=", text, ")"), json;
  if (arguments.Read(&buffer, &json) != Result::kEnd || !buffer.empty()) return "";
  json = json.substr(kBegin.size(), json.size() - kBegin.size() - kEnd.size());
  return nlohmann::json::accept(json) ? json : "";  // not if it is two arguments
}

}  // namespace bulkhead
