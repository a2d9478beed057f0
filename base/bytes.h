// Byte counts and other counts in human-readable form.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// "4GiB" -> 4294967296. A plain number is taken as is; k, M, G, T and kB, MB, GB, TB are powers of
// 10^3; K and Ki, Mi, Gi, Ti, KiB, MiB, GiB, TiB are powers of 2^10. A fraction is allowed before a
// unit ("1.5GiB"). INVALID_ARGUMENT on anything else, a negative number or an int64 overflow. For
// bytes and for any other count.
absl::StatusOr<int64_t> ParseCount(absl::string_view text);

// "17.3 GiB"; exact bytes below 1 KiB.
std::string FormatBytes(int64_t bytes);

// "643,232".
std::string FormatCount(int64_t count);

}  // namespace bulkhead
