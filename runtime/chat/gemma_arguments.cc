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

constexpr size_t kMaxWordBytes = 512;

void AppendQuoted(string_view text, std::string* out) {
  *out += '"';
  AppendJsonCharacters(text, out);
  *out += '"';
}

// A value without quotes; if it is not valid JSON, it is a string whose quotes are missing.
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
  string_view text = *buffer;
  const Result result = ReadAll(&text, out);
  buffer->erase(0, buffer->size() - text.size());  // only once: it may be a whole answer
  return result;
}

Result GemmaArguments::ReadAll(string_view* text, std::string* out) {
  while (true) {
    if (!in_string_) {
      const Result result = ReadMark(text, out);
      if (!in_string_) return result;
    }
    size_t which = 0, safe = 0;
    const size_t at = FindMarker(*text, {quote_}, &which, &safe);
    const bool ends = at != std::string::npos;
    AppendJsonCharacters(text->substr(0, ends ? at : safe), out);
    text->remove_prefix(ends ? at + quote_.size() : safe);
    if (!ends) return Result::kMore;
    *out += '"';
    in_string_ = false;
  }
}

// Reads until a string begins, or a result is known.
Result GemmaArguments::ReadMark(string_view* text, std::string* out) {
  while (true) {
    const size_t end = text->find_first_of(wants_key_ ? ":}<" : "{[,]}<");
    if (end > kMaxWordBytes) {
      return text->size() > kMaxWordBytes ? Result::kForeign : Result::kMore;
    }
    const string_view word = absl::StripAsciiWhitespace(text->substr(0, end));
    const string_view rest = text->substr(end);
    const char mark = rest[0];
    if (mark == '<') {
      if (MayBecome(rest, quote_)) return Result::kMore;
      if (!absl::StartsWith(rest, quote_) || !word.empty()) return Result::kForeign;
      text->remove_prefix(end + quote_.size());
      *out += '"';
      in_string_ = true;
      return Result::kMore;
    }
    const bool opens = mark == '{' || mark == '[';
    if (opens && levels_.size() == static_cast<size_t>(kCallLimits.max_depth)) {
      return Result::kForeign;
    }
    if (mark == ':') {
      if (!word.empty()) AppendQuoted(word, out);
    } else {
      AppendBare(word, out);
    }
    *out += mark;
    if (mark == ':' || mark == ',') *out += ' ';
    if (opens) levels_.push_back(mark == '{');
    if (mark == '}' || mark == ']') levels_.pop_back();
    text->remove_prefix(end + 1);
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
