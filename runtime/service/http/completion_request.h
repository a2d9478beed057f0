// The body of /v1/completions as messages of the public API.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/service/http/generation_options.h"
#include "runtime/service/http/json_fields.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {

struct CompletionRequest {
  GenerationOptions options;
  std::vector<v1::GenerateRequest> prompts;  // at least one
};

// "text", ["text", ...], [1, 2, ...] or [[1, 2], ...] in `name` of the body: a copy of `common` for
// each. `n`: choices per prompt; `most`: choices in total.
absl::Status ReadPrompts(JsonFields& fields, const std::string& name,
                         const v1::GenerateRequest& common, int n, int most,
                         std::vector<v1::GenerateRequest>* out);

// INVALID_ARGUMENT naming a field of the body; further checks are BuildRequest's.
absl::StatusOr<CompletionRequest> ReadCompletion(const Json& body, const RequestRules& rules);

}  // namespace bulkhead
