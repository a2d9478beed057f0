// Untrusted JSON: bounded in depth and number of values, duplicate keys refused, errors name the
// field.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace bulkhead {

struct JsonLimits {
  int max_depth = 64;
  int64_t max_values = 2'000'000;  // bounds the memory for the tree of a hostile 100 MB text
};

// Parses the object in `text` (a leading byte order mark is skipped). INVALID_ARGUMENT names
// `source`, the byte offset, the nearest key and, for a number out of range of double (1e999, NaN),
// the number.
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text, absl::string_view source,
                                               const JsonLimits& limits = {});

// `value` as JSON, truncated to fit in a message.
std::string JsonExcerpt(const nlohmann::json& value);

}  // namespace bulkhead
