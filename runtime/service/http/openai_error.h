// Refusals as clients of OpenAI's API expect them: a status of HTTP and
// {"error": {"message", "type", "param", "code"}}; `code` is the typed reason of the service
// (runtime/engine/refusal.h), `param` the field of the JSON body.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/service/http/http_message.h"

namespace bulkhead {

// "Not Found"
absl::string_view HttpReason(int http_status);
int HttpStatusOf(const absl::Status& status);
// The reason of a refusal, as OpenAI's code where clients look for that.
std::string CodeOf(const absl::Status& status);
// The object of the error, one line.
std::string ErrorJson(const absl::Status& status, int http_status);
// With Retry-After if a retry can help. `http_status` 0: HttpStatusOf(status).
HttpAnswer ErrorAnswer(const absl::Status& status, int http_status = 0);

// A refusal of a field, or of a part of it, with the field renamed; other refusals unchanged.
absl::Status WithFieldsRenamed(
    const absl::Status& status,
    std::initializer_list<std::pair<absl::string_view, absl::string_view>> from_to);

// A refusal of the form of an answer, renamed to the field of the body that set the form. For
// kToolsField the form is the schema of all tools' calls, with each tool's parameters in "$defs" by
// its index in the list: the refusal names that tool's.
inline constexpr char kToolsField[] = "tools";
absl::Status InFormField(const absl::Status& status, absl::string_view form_field);

// INVALID_ARGUMENT (UNSUPPORTED_PARAMETER) "`field`: `why`".
absl::Status NotSupported(absl::string_view field, absl::string_view why);

}  // namespace bulkhead
