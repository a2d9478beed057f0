// The body of /v1/responses, as that of a chat: what both have in common is read once
// (chat_request.h). Fields as in https://platform.openai.com/docs/api-reference/responses/create.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/service/http/chat_request.h"

namespace bulkhead {

struct ResponsesRequest {
  ChatCompletionRequest chat;
  // Members of the response object that repeat the request: JSON with a comma at its end.
  std::string echo;
};

// INVALID_ARGUMENT naming a field of the body.
absl::StatusOr<ResponsesRequest> ReadResponses(Json body, const RequestRules& rules);

// A refusal of a chat's field, with the name that the field has here.
absl::Status InResponsesFields(const absl::Status& status);

}  // namespace bulkhead
