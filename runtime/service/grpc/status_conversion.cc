#include "runtime/service/grpc/status_conversion.h"

#include <optional>

#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

constexpr char kRequestIdHeader[] = "x-request-id";
constexpr size_t kMaxEchoedBytes = 256;

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status rpc = ToRpcStatus(status);
  return {static_cast<grpc::StatusCode>(rpc.code()), rpc.message(), rpc.SerializeAsString()};
}

grpc::Status EndWith(grpc::CallbackServerContext& context, const absl::Status& status) {
  const std::optional<std::string> pushback = RetryPushback(status);
  if (pushback.has_value()) context.AddTrailingMetadata(kRetryPushbackKey, *pushback);
  return ToGrpcStatus(status);
}

void EchoRequestId(grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kRequestIdHeader);
  if (found == context.client_metadata().end() || found->second.size() > kMaxEchoedBytes) return;
  context.AddInitialMetadata(kRequestIdHeader,
                             std::string(found->second.data(), found->second.size()));
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(EndWith(context, status));
  return reactor;
}

}  // namespace bulkhead
