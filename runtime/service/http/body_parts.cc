#include "runtime/service/http/body_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace bulkhead {

void AppendEscaped(absl::string_view text, std::string* out) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppendFormat(out, "\\u%04x", static_cast<unsigned int>(c));
        } else {
          out->push_back(c);
        }
    }
  }
}

std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  AppendEscaped(text, &out);
  out += '"';
  return out;
}

absl::string_view WholeCharacters(absl::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end == 0 ? limit : end);
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
