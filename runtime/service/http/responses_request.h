// The body of /v1/responses, read as a chat's body; chat_request.h reads the fields that both
// share. Fields as in https://platform.openai.com/docs/api-reference/responses/create.
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

// A refusal of a chat's field, under the field's name in /v1/responses.
absl::Status InResponsesFields(const absl::Status& status);

}  // namespace bulkhead
