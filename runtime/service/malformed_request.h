// A request that gRPC cannot parse (a string field that is not UTF-8, a cut message) never reaches
// a service that takes messages: gRPC 1.51 answers it with an UNIMPLEMENTED that has no text. This
// gives such an answer its right code and says what is wrong; services that parse themselves say
// the same.
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

// For ServerBuilder::experimental().SetInterceptorCreators. Our own services never end a call with
// an UNIMPLEMENTED that says nothing.
InterceptorFactories ExplainMalformedRequests();

}  // namespace bulkhead
