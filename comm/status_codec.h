// A status as text, so that it can travel between ranks: its code, its exit code and its message.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

std::string EncodeStatus(const absl::Status& status);

// INTERNAL when `text` is not what EncodeStatus writes.
absl::Status DecodeStatus(absl::string_view text);

}  // namespace bulkhead
