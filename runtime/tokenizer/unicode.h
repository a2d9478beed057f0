// UTF-8 and the character classes that tokenizers need, with the Unicode tables of the reference
// library. Every function except IsValidUtf8 and Utf8Repair requires valid UTF-8.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// No overlong forms, no surrogates, nothing above U+10FFFF.
bool IsValidUtf8(absl::string_view bytes);

// The character at text[*position]; advances *position. REQUIRES: *position < text.size().
char32_t NextChar(absl::string_view text, size_t* position);
// The character that ends at `end`, and its start. REQUIRES: end > 0.
char32_t PreviousChar(absl::string_view text, size_t end, size_t* begin);
// Length of the character with this lead byte.
size_t CharBytes(char lead);
inline bool IsCharBoundary(absl::string_view text, size_t position) {
  return position >= text.size() || (text[position] & 0xC0) != 0x80;
}
void AppendUtf8(char32_t c, std::string* out);

bool IsWhitespace(char32_t c);     // White_Space
bool IsNumeric(char32_t c);        // Nd, Nl, No
bool IsPunctuation(char32_t c);    // P*, and ASCII punctuation and symbols
bool IsWordChar(char32_t c);       // \w: letters, marks, digits, connectors, joiners
bool IsCombiningMark(char32_t c);  // M*
void AppendLowercase(char32_t c, std::string* out);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Passes the normal form of the text to `append`, part by part. Linear time, even for long runs of
// combining marks in the wrong order.
absl::Status NormalizeUnicode(NormalForm form, absl::string_view text,
                              const std::function<void(absl::string_view)>& append);

// Converts streamed bytes to UTF-8: each invalid sequence (maximal prefix of a character) becomes
// U+FFFD. A possible beginning of a character is held back.
class Utf8Repair {
 public:
  void Append(absl::string_view bytes, std::string* out);
  void Flush(std::string* out);

 private:
  std::string held_;  // an incomplete character, at most 3 bytes
};

constexpr absl::string_view kReplacementChar = "\xEF\xBF\xBD";

}  // namespace bulkhead
