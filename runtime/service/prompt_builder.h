// What every request with a prompt is checked for: fields that nobody knows, names, the prompt's
// tokens. Refusals as in request_builder.h.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {

// UNSUPPORTED_PARAMETER for a field that this version would drop without a word. `path` names the
// message that holds it, with a dot behind it unless it is the request itself.
absl::Status RefuseUnknownFields(const google::protobuf::Message& message, const std::string& path);

// request_id, cache_salt, model.
absl::Status CheckNames(const v1::GenerateRequest& request, const RequestRules& rules);

// The prompt's tokens: at least one, at most what leaves `room` tokens of max_model_len, all of
// them ids of the model.
absl::StatusOr<std::vector<TokenId>> BuildPrompt(const v1::GenerateRequest& request,
                                                 const RequestRules& rules, int room);

}  // namespace bulkhead
