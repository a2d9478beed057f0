// Oniguruma's regular expressions (its own syntax, as tokenizer.json files use it) in PCRE2's
// words. The two read much alike and mean different things: \h, \s, \w, \b, {n,m}+, {,n}, (?m),
// scripts, nested and intersected character classes, options in the middle of a group.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// UNIMPLEMENTED names a construct that has no translation; INVALID_ARGUMENT a pattern that is none.
// The result is meant for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE and a newline that is \n.
absl::StatusOr<std::string> TranslateOniguruma(absl::string_view pattern);

}  // namespace bulkhead
