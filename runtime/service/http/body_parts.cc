#include "runtime/service/http/body_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "runtime/chat/call_json.h"

namespace bulkhead {
namespace {

// Where clients that split a stream with Python's splitlines(), as httpx does, end a line.
struct LineEnd {
  absl::string_view bytes;
  absl::string_view escaped;
};
constexpr LineEnd kLineEnds[] = {
    {"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}};

const LineEnd* LineEndAt(absl::string_view text) {
  if (static_cast<unsigned char>(text.front()) < 0x80) return nullptr;
  for (const LineEnd& end : kLineEnds) {
    if (absl::StartsWith(text, end.bytes)) return &end;
  }
  return nullptr;
}

}  // namespace

void AppendEscaped(absl::string_view text, std::string* out) {
  for (; !text.empty(); text.remove_prefix(1)) {
    if (const LineEnd* end = LineEndAt(text); end != nullptr) {
      absl::StrAppend(out, end->escaped);
      text.remove_prefix(end->bytes.size() - 1);
    } else {
      AppendJsonCharacters(text.substr(0, 1), out);
    }
  }
}

std::string WithLineEndsEscaped(absl::string_view json) {
  std::string out;
  for (; !json.empty(); json.remove_prefix(1)) {
    const LineEnd* const end = LineEndAt(json);
    absl::StrAppend(&out, end == nullptr ? json.substr(0, 1) : end->escaped);
    if (end != nullptr) json.remove_prefix(end->bytes.size() - 1);
  }
  return out;
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
