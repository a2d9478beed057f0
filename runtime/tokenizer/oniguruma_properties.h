// The character properties that Oniguruma's \p{...} and [:...:] name, as the inside of PCRE2's
// brackets.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

// \w inside brackets, and outside, where Oniguruma counts six digits and fractions of Latin-1 too.
inline constexpr char kOnigurumaWord[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
inline constexpr char kOnigurumaWordAlone[] =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

// Nothing when the property is unknown or, for `negated`, is no single property of PCRE2.
std::optional<std::string> OnigurumaProperty(absl::string_view name, bool negated);
std::optional<std::string> OnigurumaPosixBracket(absl::string_view name);

}  // namespace bulkhead
