// The form of a chat's answer: a call that tool_choice asks for, in the model's format, and where
// the form begins if the model reasons first.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/output_parser.h"
#include "runtime/service/http/chat_request.h"

namespace bulkhead {

// `prompt` is the rendered one. UNSUPPORTED_PARAMETER if `format` has no such form.
absl::Status AddForm(const OutputFormat& format, absl::string_view prompt,
                     ChatCompletionRequest* request);

}  // namespace bulkhead
