// From the text of a template to its tree.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/jinja/ast.h"

namespace bulkhead::jinja {

// INVALID_ARGUMENT or UNIMPLEMENTED, "line 3: ...".
absl::StatusOr<std::unique_ptr<const Root>> ParseTemplate(absl::string_view source);

}  // namespace bulkhead::jinja
