// Operations on texts that methods and filters share.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/jinja/evaluator.h"

namespace bulkhead::jinja {

// str.split() and str.rsplit(): at most `most` cuts, any number if below 0.
std::vector<std::string> Split(absl::string_view text, absl::string_view separator, int64_t most,
                               bool from_right);
std::vector<std::string> SplitSpace(absl::string_view text, int64_t most, bool from_right);
std::vector<std::string> SplitLines(absl::string_view text, bool keep_ends);
absl::StatusOr<std::string> Replace(absl::string_view text, absl::string_view from,
                                    absl::string_view to, int64_t most, Meter* meter);
absl::StatusOr<Value> TextList(Evaluator& evaluator, const std::vector<std::string>& parts);

}  // namespace bulkhead::jinja
