// Translates Oniguruma's regular expressions (its own syntax, as used by tokenizer.json files) to
// PCRE2. The two look similar but differ in meaning: \h, \s, \w, \b, {n,m}+, {,n}, (?m), scripts,
// nested and intersected character classes, options in the middle of a group.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// UNIMPLEMENTED names a construct without a translation; INVALID_ARGUMENT for an invalid pattern.
// The result requires PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE and newline \n.
absl::StatusOr<std::string> TranslateOniguruma(absl::string_view pattern);

}  // namespace bulkhead
