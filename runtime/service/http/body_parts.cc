#include "runtime/service/http/body_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/utf8.h"
#include "runtime/chat/call_json.h"

namespace bulkhead {

void AppendEscaped(absl::string_view text, std::string* out) {
  std::string json;
  AppendJsonCharacters(text, &json);
  *out += WithLineEndsEscaped(json);
}

std::string WithLineEndsEscaped(absl::string_view json) {
  // Line ends for clients that split a stream with Python's splitlines(), such as httpx.
  return absl::StrReplaceAll(
      json, {{"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}});
}

std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  AppendEscaped(text, &out);
  out += '"';
  return out;
}

void BodyParts::Add(std::string text) {
  parts_.emplace_back([text = std::move(text)](std::string* out) {
    out->append(text);
    return true;
  });
}

void BodyParts::AddEscaped(absl::string_view text, std::shared_ptr<const void> owner) {
  parts_.emplace_back([text, owner = std::move(owner)](std::string* out) mutable {
    const absl::string_view slice = WholeCharacters(text, kSliceBytes);
    AppendEscaped(slice, out);
    text.remove_prefix(slice.size());
    return text.empty();
  });
}

void BodyParts::Add(BodyParts more) {
  std::move(more.parts_.begin(), more.parts_.end(), std::back_inserter(parts_));
}

bool BodyParts::Produce(std::string* out) {
  const size_t limit = out->size() + kSliceBytes;
  while (!parts_.empty()) {
    if (out->size() >= limit) return false;
    if (parts_.front()(out)) parts_.pop_front();
  }
  return true;
}

}  // namespace bulkhead
