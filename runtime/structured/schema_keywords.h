// Which keywords of a JSON schema are known, and checked access to their values.
#pragma once

#include <initializer_list>
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
// UNIMPLEMENTED if there is any keyword except `keyword`, those in `also`, and annotations.
absl::Status CheckAlone(const nlohmann::ordered_json& schema, absl::string_view path,
                        absl::string_view keyword,
                        std::initializer_list<absl::string_view> also = {});
// The types that `schema` has, or those its keywords imply; empty: any value.
absl::StatusOr<std::vector<std::string>> TypesOf(const nlohmann::ordered_json& schema,
                                                 absl::string_view path);
// A count of at most 2^30, or `absent`.
absl::StatusOr<int> CountOf(const nlohmann::ordered_json& schema, absl::string_view path,
                            const char* keyword, int absent);
// Whether a "format" does not restrict how a string is written: an annotation.
bool IsMeaning(absl::string_view format);
// The regular expression of a "format"; it does not match the empty text.
absl::StatusOr<absl::string_view> FormatPattern(absl::string_view path, absl::string_view format);

}  // namespace bulkhead::structured
