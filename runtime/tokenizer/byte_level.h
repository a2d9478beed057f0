// The alphabet of byte-level tokenizers: each byte has a printable character of its own.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

// The character that stands for `byte`.
absl::string_view ByteLevelChar(uint8_t byte);
// The bytes that `text`'s characters stand for; false when one stands for none.
bool ByteLevelToBytes(absl::string_view text, std::string* bytes);

}  // namespace bulkhead
