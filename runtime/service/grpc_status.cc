#include "runtime/service/grpc_status.h"

#include <optional>

#include "absl/strings/str_cat.h"
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
  const std::optional<absl::Duration> delay = RetryAfter(status);
  if (delay.has_value()) {
    context.AddTrailingMetadata("grpc-retry-pushback-ms",
                                absl::StrCat(absl::ToInt64Milliseconds(*delay)));
  } else if (status.code() == absl::StatusCode::kResourceExhausted) {
    context.AddTrailingMetadata("grpc-retry-pushback-ms", "-1");  // gRPC's word for: do not retry
  }
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
