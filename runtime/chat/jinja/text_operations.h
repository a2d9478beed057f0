// Operations on texts that methods and filters share.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/jinja/evaluator.h"

namespace bulkhead::jinja {

using Parts = std::vector<std::string>;

// str.split() and str.rsplit(): at most `most` cuts, any number if below 0. RESOURCE_EXHAUSTED if
// TextList could not hold the parts.
absl::StatusOr<Parts> Split(absl::string_view text, absl::string_view separator, int64_t most,
                            bool from_right, Meter* meter);
absl::StatusOr<Parts> SplitSpace(absl::string_view text, int64_t most, bool from_right,
                                 Meter* meter);
absl::StatusOr<Parts> SplitLines(absl::string_view text, bool keep_ends, Meter* meter);
absl::StatusOr<std::string> Replace(absl::string_view text, absl::string_view from,
                                    absl::string_view to, int64_t most, Meter* meter);
absl::StatusOr<Value> TextList(Evaluator& evaluator, const Parts& parts);

}  // namespace bulkhead::jinja
