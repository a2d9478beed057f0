// The bounded parse of base/json.h for texts whose order of keys matters: chat requests, whose
// tools a chat template prints.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/json.h"
#include "nlohmann/json.hpp"

namespace bulkhead {

// As ParseJsonObject, but keys keep the order of the text. Looking up a key in the result is linear
// in the object's size. `last_key_counts`: the last of duplicate keys is kept, as in Python;
// otherwise they are an error.
absl::StatusOr<nlohmann::ordered_json> ParseOrderedJsonObject(absl::string_view text,
                                                              absl::string_view source,
                                                              const JsonLimits& limits = {},
                                                              bool last_key_counts = false);

}  // namespace bulkhead
