// UTF-8 and the character classes that tokenizers ask for, as the reference library's Unicode
// tables have them. Every function but IsValidUtf8 and RepairUtf8 takes valid UTF-8.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

constexpr absl::string_view kReplacementChar = "\xEF\xBF\xBD";

// No overlong forms, no surrogates, nothing above U+10FFFF. Below 2 GiB, as all texts here.
bool IsValidUtf8(absl::string_view bytes);
// What can be no character becomes U+FFFD, one for each longest beginning of a character.
std::string RepairUtf8(absl::string_view bytes);

// The character at text[*position]; moves *position past it. REQUIRES: *position < text.size().
char32_t NextChar(absl::string_view text, size_t* position);
// The character that ends at `end`, and where it begins. REQUIRES: end > 0.
char32_t PreviousChar(absl::string_view text, size_t end, size_t* begin);
// Bytes of the character that begins with `lead`.
size_t CharBytes(char lead);
inline bool IsCharBoundary(absl::string_view text, size_t position) {
  return position >= text.size() || (text[position] & 0xC0) != 0x80;
}
void AppendUtf8(char32_t c, std::string* out);

bool IsWhitespace(char32_t c);     // White_Space
bool IsNumeric(char32_t c);        // Nd, Nl, No
bool IsPunctuation(char32_t c);    // P*, and all of ASCII's
bool IsWordChar(char32_t c);       // \w: letters, marks, digits, connectors, joiners
bool IsCombiningMark(char32_t c);  // M*
void AppendLowercase(char32_t c, std::string* out);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Linear in the text, also for long runs of combining marks in the wrong order.
absl::StatusOr<std::string> NormalizeUnicode(NormalForm form, absl::string_view text);

}  // namespace bulkhead
