// UTF-8, read and written by ICU's macros. The functions that take a position or a character
// require valid UTF-8, unless they say more.
#pragma once

#include <unicode/utf8.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

constexpr absl::string_view kReplacementChar = "\xEF\xBF\xBD";

// No overlong forms, no surrogates, nothing above U+10FFFF.
bool IsValidUtf8(absl::string_view bytes);
// Length of the leading ASCII bytes.
size_t AsciiPrefix(absl::string_view bytes);

// The character at text[*position]; advances *position. Of invalid bytes U+FFFD for each longest
// beginning of a character, and for each other byte. REQUIRES: *position < text.size().
inline char32_t NextChar(absl::string_view text, size_t* position) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
  UChar32 c;
  U8_NEXT_OR_FFFD(bytes, *position, text.size(), c);
  return static_cast<char32_t>(c);
}

// Length of the character with this lead byte.
inline size_t CharBytes(char lead) {
  return 1 + U8_COUNT_TRAIL_BYTES_UNSAFE(static_cast<uint8_t>(lead));
}
inline bool IsCharBoundary(absl::string_view text, size_t position) {
  return position >= text.size() || !U8_IS_TRAIL(text[position]);
}
// The start of the character that `position` is in or at.
inline size_t CharStart(absl::string_view text, size_t position) {
  while (position > 0 && !IsCharBoundary(text, position)) --position;
  return position;
}
// The character that ends at `end`, and its start. REQUIRES: end > 0.
char32_t PreviousChar(absl::string_view text, size_t end, size_t* begin);
// The longest beginning of `text` of at most `limit` bytes that does not split a character; of
// invalid UTF-8 it may split one.
absl::string_view WholeCharacters(absl::string_view text, size_t limit);

int64_t CountChars(absl::string_view text);
// The byte at which character `index` begins; the size for one at or after the end.
size_t ByteOfChar(absl::string_view text, int64_t index);

void AppendUtf8(char32_t c, std::string* out);

}  // namespace bulkhead
