// Conversion of absl::Status to grpc::Status. Their codes have the same numbers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"

namespace bulkhead {

// With typed details in grpc-status-details-bin.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Status for the end of a call; also adds its trailers (grpc-retry-pushback-ms). Call once per
// call, before Finish.
grpc::Status EndWith(grpc::CallbackServerContext& context, const absl::Status& status);

// Echoes the client's x-request-id, if any, in the initial metadata. Call before anything is
// written.
void EchoRequestId(grpc::CallbackServerContext& context);

// Ends a unary call at once.
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context, const absl::Status& status);

}  // namespace bulkhead
