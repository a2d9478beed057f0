// Text as Python's str sees it: code points of UTF-8. Cases and classes are ICU's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead::jinja {

// Bytes of the first code point; 1 for an invalid first byte. `text` is not empty.
size_t CodePointBytes(absl::string_view text);
// Removes the first code point from `*text`. `text` is not empty.
char32_t TakeCodePoint(absl::string_view* text);
void AppendCodePoint(std::string* text, char32_t code);

// str.isspace() of one character.
bool IsSpace(char32_t code);
bool IsAlpha(char32_t code);
bool IsDecimal(char32_t code);
bool IsDigit(char32_t code);
bool IsNumeric(char32_t code);
bool IsPrintable(char32_t code);
bool IsUpper(char32_t code);
bool IsLower(char32_t code);
// Whether a name may contain `code`.
bool IsNameCharacter(char32_t code);

std::string ToUpper(absl::string_view text);
std::string ToLower(absl::string_view text);
std::string CaseFold(absl::string_view text);
// The first character in upper case, the others in lower case.
std::string Capitalize(absl::string_view text);
// str.title(): each run of letters capitalised.
std::string Title(absl::string_view text);
std::string SwapCase(absl::string_view text);

// `text` without leading / trailing characters of `set`; white space if it is null.
absl::string_view StripLeft(absl::string_view text, const absl::string_view* set = nullptr);
absl::string_view StripRight(absl::string_view text, const absl::string_view* set = nullptr);

}  // namespace bulkhead::jinja
