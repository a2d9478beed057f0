// The border between absl::Status and grpc::Status. Their codes have the same numbers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"

namespace bulkhead {

// With typed details in grpc-status-details-bin.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Ends a call: also adds the trailers that go with `status` (grpc-retry-pushback-ms). To be called
// once per call, before Finish.
grpc::Status EndWith(grpc::CallbackServerContext& context, const absl::Status& status);

// Sends the client's x-request-id, where it sent one, back with the first metadata. Before anything
// is written.
void EchoRequestId(grpc::CallbackServerContext& context);

// Ends a unary call at once.
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context, const absl::Status& status);

}  // namespace bulkhead
