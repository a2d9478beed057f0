// The character properties of Oniguruma's \p{...} and [:...:], as the inside of PCRE2 brackets.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

// \w inside brackets, and outside, where Oniguruma also includes six Latin-1 digits and fractions.
inline constexpr char kOnigurumaWord[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
inline constexpr char kOnigurumaWordAlone[] =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

// Nothing if the property is unknown or, for `negated`, not a single PCRE2 property.
std::optional<std::string> OnigurumaProperty(absl::string_view name, bool negated);
std::optional<std::string> OnigurumaPosixBracket(absl::string_view name);

}  // namespace bulkhead
