#include "runtime/engine/refusal.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

template <typename Message>
std::optional<Message> Attached(const absl::Status& status) {
  const auto payload =
      status.GetPayload(absl::StrCat(kPayloadUrl, Message::descriptor()->full_name()));
  Message message;
  if (!payload.has_value() || !message.ParseFromString(std::string(*payload))) return std::nullopt;
  return message;
}

}  // namespace

void Attach(absl::Status& status, const google::protobuf::Message& message) {
  status.SetPayload(absl::StrCat(kPayloadUrl, message.GetDescriptor()->full_name()),
                    absl::Cord(message.SerializeAsString()));
}

absl::Status WithReason(absl::Status status, absl::string_view reason, Metadata metadata) {
  if (status.ok() || Attached<google::rpc::ErrorInfo>(status).has_value()) return status;
  google::rpc::ErrorInfo error_info;
  error_info.set_reason(std::string(reason));
  error_info.set_domain("bulkhead");
  for (const auto& [key, value] : metadata) (*error_info.mutable_metadata())[key] = value;
  Attach(status, error_info);
  return status;
}

absl::Status WithRetryAfter(absl::Status status, absl::Duration delay) {
  if (status.ok()) return status;
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(absl::ToInt64Seconds(delay));
  retry.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(delay % absl::Seconds(1))));
  Attach(status, retry);
  return status;
}

google::rpc::ErrorInfo ErrorInfoOf(const absl::Status& status) {
  return Attached<google::rpc::ErrorInfo>(status).value_or(google::rpc::ErrorInfo());
}

std::string ReasonOf(const absl::Status& status) { return ErrorInfoOf(status).reason(); }

std::optional<absl::Duration> RetryAfter(const absl::Status& status) {
  const auto retry = Attached<google::rpc::RetryInfo>(status);
  if (!retry.has_value()) return std::nullopt;
  return absl::Seconds(retry->retry_delay().seconds()) +
         absl::Nanoseconds(retry->retry_delay().nanos());
}

}  // namespace bulkhead
