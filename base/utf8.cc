#include "base/utf8.h"

#include <algorithm>
#include <cstring>

namespace bulkhead {

bool IsValidUtf8(absl::string_view bytes) {
  const auto* const data = reinterpret_cast<const uint8_t*>(bytes.data());
  for (size_t at = 0; at < bytes.size();) {
    at += AsciiPrefix(bytes.substr(at));
    while (at < bytes.size() && !U8_IS_SINGLE(data[at])) {
      UChar32 c;
      U8_NEXT(data, at, bytes.size(), c);
      if (c < 0) return false;
    }
  }
  return true;
}

// Eight bytes at a time.
size_t AsciiPrefix(absl::string_view bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (i < bytes.size() && U8_IS_SINGLE(bytes[i])) ++i;
  return i;
}

char32_t PreviousChar(absl::string_view text, size_t end, size_t* begin) {
  size_t position = *begin = CharStart(text, end - 1);
  return NextChar(text, &position);
}

absl::string_view WholeCharacters(absl::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  const size_t end = CharStart(text, limit);
  return text.substr(0, end == 0 ? limit : end);
}

int64_t CountChars(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !U8_IS_TRAIL(c); });
}

size_t ByteOfChar(absl::string_view text, int64_t index) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (IsCharBoundary(text, at) && index-- == 0) return at;
  }
  return text.size();
}

void AppendUtf8(char32_t c, std::string* out) {
  char bytes[U8_MAX_LENGTH];
  size_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, c);
  out->append(bytes, size);
}

}  // namespace bulkhead
