// A command line with some of its flags changed, as a person would change it.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead {

// `args` without the flags of these names ("--compare") and their values. Not for switches.
std::vector<std::string> WithoutFlags(absl::Span<const std::string> args,
                                      absl::Span<const absl::string_view> names);

// `args` with `more` behind its flags, of which the last of a name wins; a KV rule takes the place
// of the other KV rules.
std::vector<std::string> ChangedArgs(absl::Span<const std::string> args,
                                     absl::Span<const std::string> more);

// Whether `args` has one of these flags.
bool HasFlag(absl::Span<const std::string> args, absl::Span<const absl::string_view> names);

}  // namespace bulkhead
