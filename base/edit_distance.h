#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace bulkhead {

// Insertions, deletions, substitutions and swaps of adjacent bytes that turn a into b. Takes
// O(|a| |b|) time and O(|b|) memory.
size_t EditDistance(absl::string_view a, absl::string_view b);

}  // namespace bulkhead
