#include "runtime/chat/gemma_arguments.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/chat/call_json.h"
#include "runtime/chat/output_delta.h"

namespace bulkhead {
namespace {

using absl::string_view;
using Result = TaggedArguments::Result;

constexpr string_view kQuote = "<|\"|>";
constexpr size_t kMaxWordBytes = 512;

void AppendQuoted(string_view text, std::string* out) {
  *out += '"';
  AppendJsonCharacters(text, out);
  *out += '"';
}

// A value without quotes; one that is none of JSON's is a string whose quotes are missing.
void AppendBare(string_view word, std::string* out) {
  if (word.empty()) return;
  if (word == "None") {
    *out += "null";
  } else if (nlohmann::json::accept(word)) {
    absl::StrAppend(out, word);
  } else {
    AppendQuoted(word, out);
  }
}

}  // namespace

Result GemmaArguments::Read(std::string* buffer, std::string* out) {
  while (true) {
    if (!in_string_) {
      const Result result = ReadMark(buffer, out);
      if (!in_string_) return result;
    }
    size_t which = 0, safe = 0;
    const size_t at = FindMarker(*buffer, {kQuote}, &which, &safe);
    const bool ends = at != std::string::npos;
    AppendJsonCharacters(string_view(*buffer).substr(0, ends ? at : safe), out);
    buffer->erase(0, ends ? at + kQuote.size() : safe);
    if (!ends) return Result::kMore;
    *out += '"';
    in_string_ = false;
  }
}

// Until a string begins, or a result is known.
Result GemmaArguments::ReadMark(std::string* buffer, std::string* out) {
  while (true) {
    const size_t end = buffer->find_first_of(wants_key_ ? ":}<" : "{[,]}<");
    if (end > kMaxWordBytes) {
      return buffer->size() > kMaxWordBytes ? Result::kForeign : Result::kMore;
    }
    const string_view word = absl::StripAsciiWhitespace(string_view(*buffer).substr(0, end));
    const string_view rest = string_view(*buffer).substr(end);
    const char mark = rest[0];
    if (mark == '<') {
      if (MayBecome(rest, kQuote)) return Result::kMore;
      if (!absl::StartsWith(rest, kQuote) || !word.empty()) return Result::kForeign;
      buffer->erase(0, end + kQuote.size());
      *out += '"';
      in_string_ = true;
      return Result::kMore;
    }
    if (mark == ':') {
      if (!word.empty()) AppendQuoted(word, out);
    } else {
      AppendBare(word, out);
    }
    *out += mark;
    if (mark == ':' || mark == ',') *out += ' ';
    if (mark == '{' || mark == '[') levels_.push_back(mark == '{');
    if (mark == '}' || mark == ']') levels_.pop_back();
    buffer->erase(0, end + 1);
    if (levels_.empty()) return Result::kEnd;
    wants_key_ = mark == '{' || (mark == ',' && levels_.back());
  }
}

void GemmaArguments::Finish(string_view buffer, std::string* out) const {
  if (in_string_) {
    AppendJsonCharacters(buffer, out);
  } else {
    absl::StrAppend(out, buffer);
  }
}

}  // namespace bulkhead
