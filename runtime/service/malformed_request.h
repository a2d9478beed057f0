// A request that gRPC cannot parse (a string field that is not UTF-8, a cut message) never reaches
// a service: gRPC 1.51 answers it with an UNIMPLEMENTED that has no text. This gives such an answer
// its right code and says what is wrong.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <vector>

namespace bulkhead {

using InterceptorFactories =
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>;

// For ServerBuilder::experimental().SetInterceptorCreators. Our own services never end a call with
// an UNIMPLEMENTED that says nothing.
InterceptorFactories ExplainMalformedRequests();

}  // namespace bulkhead
