#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

// In hexadecimal.
std::string Sha256Hex(absl::string_view bytes);

}  // namespace bulkhead
