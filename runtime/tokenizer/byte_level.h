// The byte-level alphabet: maps each byte to a printable character.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

// The character for `byte`.
absl::string_view ByteLevelChar(uint8_t byte);
// The bytes for `text`'s characters; false if one is not in the alphabet.
bool ByteLevelToBytes(absl::string_view text, std::string* bytes);

}  // namespace bulkhead
