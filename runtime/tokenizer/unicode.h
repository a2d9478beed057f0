// The character classes and normal forms that tokenizers need, with the Unicode tables of the
// reference library.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

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

}  // namespace bulkhead
