#pragma once

#include <openssl/sha.h>

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

using Sha256Digest = std::array<uint8_t, SHA256_DIGEST_LENGTH>;

inline Sha256Digest Sha256(absl::string_view bytes) {
  Sha256Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

// In hexadecimal.
inline std::string Sha256Hex(absl::string_view bytes) {
  const Sha256Digest digest = Sha256(bytes);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

}  // namespace bulkhead
