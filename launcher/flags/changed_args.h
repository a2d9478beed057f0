// Editing the flags of a command line.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead {

// `args` without the flags of these names ("--compare") and their values; not for switches.
std::vector<std::string> WithoutFlags(absl::Span<const std::string> args,
                                      absl::Span<const absl::string_view> names);

// `args` with `more` after its flags, where the last value wins; a KV rule replaces the other KV
// rules.
std::vector<std::string> ChangedArgs(absl::Span<const std::string> args,
                                     absl::Span<const std::string> more);

// Whether `args` has one of these flags.
bool HasFlag(absl::Span<const std::string> args, absl::Span<const absl::string_view> names);

}  // namespace bulkhead
