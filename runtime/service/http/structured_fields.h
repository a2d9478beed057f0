// The form of an answer in a body: OpenAI's response_format, vLLM's structured_outputs and its
// older guided_json, guided_regex, guided_choice. At most one of them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/service/http/json_fields.h"

namespace bulkhead {

// INVALID_ARGUMENT naming a field of the body. Grammars are checked with the request; their errors
// name `form_field`, if there is one.
absl::Status ReadStructured(JsonFields& fields, v1::GenerateRequest* request,
                            std::string* form_field);

// {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {...}}.
// `name`: the field's name in errors.
absl::Status ReadResponseFormat(const Json& format, const std::string& name,
                                v1::GenerateRequest* request);

}  // namespace bulkhead
