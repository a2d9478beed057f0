// Requests that gRPC cannot parse (a string field that is not UTF-8, a truncated message) never
// reach a service with typed messages: gRPC 1.51 answers UNIMPLEMENTED with an empty message. This
// replaces such an answer by the right code and an explanation; services that parse requests
// themselves return the same.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

inline constexpr char kCannotParse[] =
    "a string in it is not valid UTF-8, or the message is cut or of another type";

// INVALID_ARGUMENT (MALFORMED_REQUEST): "the request does not parse: `why`; ...".
absl::Status MalformedRequest(absl::string_view why);

using InterceptorFactories =
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>;

// For ServerBuilder::experimental().SetInterceptorCreators. Our own services never return
// UNIMPLEMENTED with an empty message.
InterceptorFactories ExplainMalformedRequests();

}  // namespace bulkhead
