// Which keywords of a JSON schema are known, and checked access to their values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace bulkhead::structured {

absl::Status InvalidSchema(absl::string_view path, absl::string_view what);
absl::Status UnsupportedSchema(absl::string_view path, absl::string_view what);

// UNIMPLEMENTED for a keyword that is not supported.
absl::Status CheckKeywords(const nlohmann::ordered_json& schema, absl::string_view path);
// UNIMPLEMENTED if there is any keyword beside `keyword`, `also` and annotations.
absl::Status CheckAlone(const nlohmann::ordered_json& schema, absl::string_view path,
                        absl::string_view keyword, absl::string_view also = "");
// The types that `schema` has, or those its keywords imply; empty: any value.
absl::StatusOr<std::vector<std::string>> TypesOf(const nlohmann::ordered_json& schema,
                                                 absl::string_view path);
// A count of at most 2^30, or `absent`.
absl::StatusOr<int> CountOf(const nlohmann::ordered_json& schema, absl::string_view path,
                            const char* keyword, int absent);
// The regular expression of a "format".
absl::StatusOr<absl::string_view> FormatPattern(absl::string_view path, absl::string_view format);

}  // namespace bulkhead::structured
