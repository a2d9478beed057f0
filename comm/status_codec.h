// A status as text, so that it can travel between ranks: its code, its payloads (exit code, lost
// rank) and its message.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// The payload of a status that all ranks return alike (IsAgreed). It does not travel: who is told
// of a status alone has agreed to nothing.
inline constexpr char kAgreedUrl[] = "bulkhead/agreed";
inline constexpr int kMaxPayloads = 8;

std::string EncodeStatus(const absl::Status& status);

// INTERNAL when `text` is not what EncodeStatus writes.
absl::Status DecodeStatus(absl::string_view text);

}  // namespace bulkhead
