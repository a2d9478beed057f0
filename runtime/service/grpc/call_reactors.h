// The transport of a call on gRPC's callback API: what it receives, it tells the call, and what the
// call sends goes to gRPC. Used by raw methods.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "runtime/service/call_transport.h"

namespace bulkhead {

using MakeCall = std::function<std::shared_ptr<Call>(CallTransport* transport)>;

// Starts the call that `make` makes. The reactor owns itself, and the call with it, until gRPC is
// done; `response` belongs to gRPC, until then.
grpc::ServerUnaryReactor* RunUnary(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                   const MakeCall& make);
grpc::ServerWriteReactor<grpc::ByteBuffer>* RunStream(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      const MakeCall& make);

}  // namespace bulkhead
