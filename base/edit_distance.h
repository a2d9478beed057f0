#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace bulkhead {

// How many letters must be put in, taken out or replaced, or neighbours exchanged. Takes time and
// memory in proportion to the product of the lengths, and to b's.
size_t EditDistance(absl::string_view a, absl::string_view b);

}  // namespace bulkhead
