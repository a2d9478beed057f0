// A status as text, to be sent between ranks: code, payloads (exit code, lost rank) and message.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// Payload of a status that all ranks return (IsAgreed). Not encoded: receiving a status is not an
// agreement.
inline constexpr char kAgreedUrl[] = "bulkhead/agreed";
inline constexpr int kMaxPayloads = 8;

std::string EncodeStatus(const absl::Status& status);

// INTERNAL if `text` was not written by EncodeStatus.
absl::Status DecodeStatus(absl::string_view text);

}  // namespace bulkhead
