#include "runtime/engine/request.h"

#include "absl/strings/cord.h"

namespace bulkhead {
namespace {

constexpr char kReasonUrl[] = "bulkhead/refusal_reason";

}  // namespace

absl::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
    case FinishReason::kStopToken:
    case FinishReason::kStopString:
      return "stop";
    case FinishReason::kMaxTokens:
    case FinishReason::kModelLength:
      return "length";
  }
  return "?";
}

absl::Status WithRefusalReason(absl::Status status, absl::string_view reason) {
  if (!status.ok()) status.SetPayload(kReasonUrl, absl::Cord(reason));
  return status;
}

std::string RefusalReason(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace bulkhead
