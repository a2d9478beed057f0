// JSON from other people: bounded in depth and count, duplicate keys refused, errors by field name.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace bulkhead {

struct JsonLimits {
  int max_depth = 64;
  int64_t max_values = 2'000'000;  // keeps the tree of a hostile 100 MB text within memory
};

// The object that `text` holds (a leading byte order mark is skipped). INVALID_ARGUMENT names
// `source`, the byte, the nearest key and, for a number that no double holds (1e999, NaN), the
// number.
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text, absl::string_view source,
                                               const JsonLimits& limits = {});

// `value` as JSON, cut to what fits in a message.
std::string JsonExcerpt(const nlohmann::json& value);

}  // namespace bulkhead
