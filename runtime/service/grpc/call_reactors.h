// The transport of a call on gRPC's callback API: passes what gRPC receives to the call, and what
// the call sends to gRPC. Used by raw methods.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>

#include "runtime/service/call_transport.h"

namespace bulkhead {

using MakeCall = std::function<std::shared_ptr<Call>(CallTransport* transport)>;

// Whether a cancellation, whose cause gRPC does not report, was due to the deadline of a call that
// began at `begun`. Clients cancel at their own deadline; gRPC sends the remaining time rounded up
// to three digits, by up to a hundredth.
bool IsPastDeadline(std::chrono::system_clock::time_point begun,
                    std::chrono::system_clock::time_point deadline,
                    std::chrono::system_clock::time_point now);

// Starts the call that `make` makes. The reactor owns itself and the call until gRPC is done; until
// then `response` belongs to gRPC.
grpc::ServerUnaryReactor* RunUnary(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                   const MakeCall& make);
grpc::ServerWriteReactor<grpc::ByteBuffer>* RunStream(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      const MakeCall& make);

}  // namespace bulkhead
