// Build identification.
#pragma once

#include "absl/strings/string_view.h"

namespace bulkhead {

// "0.1.0 (1a2b3c4)"; without the commit if the source was not a git checkout.
absl::string_view Version();

// How it was compiled: "GNU 12.2.0, Release, -O3 ...".
absl::string_view BuildText();

}  // namespace bulkhead
