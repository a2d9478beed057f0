// The input of /v1/responses as the messages of a chat.
#pragma once

#include "absl/status/status.h"
#include "runtime/service/http/json_fields.h"

namespace bulkhead {

// Appends to `messages`, and takes the texts out of `input`: a text, or a list of items: messages,
// function_call, function_call_output and reasoning. Calls join the assistant's message before
// them, reasoning the one after it; encrypted reasoning cannot be read and is refused.
// INVALID_ARGUMENT naming the item.
absl::Status ReadInput(Json& input, Json* messages);

}  // namespace bulkhead
