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
// The reason of a refusal, in the word of OpenAI where clients look for it.
std::string CodeOf(const absl::Status& status);
// The object of the error, one line.
std::string ErrorJson(const absl::Status& status, int http_status);
// With Retry-After where a retry can help. `http_status` 0: that of HttpStatusOf.
HttpAnswer ErrorAnswer(const absl::Status& status, int http_status = 0);

// A refusal of a field, or of a part of it, by another name of the field; others as they are.
absl::Status WithFieldsRenamed(
    const absl::Status& status,
    std::initializer_list<std::pair<absl::string_view, absl::string_view>> from_to);

// A refusal of the form of an answer, with the field of the body that this is from in place of
// ours. Of kToolsField it is the schema of all tools' calls, with each one's parameters as "$defs"
// by its place in the list: the refusal is of that tool's.
inline constexpr char kToolsField[] = "tools";
absl::Status InFormField(const absl::Status& status, absl::string_view form_field);

// INVALID_ARGUMENT (UNSUPPORTED_PARAMETER) "`field`: `why`".
absl::Status NotSupported(absl::string_view field, absl::string_view why);

}  // namespace bulkhead
