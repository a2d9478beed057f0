#include "runtime/service/grpc/control_service.h"

#include <memory>
#include <string>

#include "runtime/service/grpc/call_reactors.h"
#include "runtime/service/guard/connection_guard.h"
#include "runtime/service/local_call.h"

namespace bulkhead {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

template <typename Request, typename Response>
grpc::ServerUnaryReactor* ControlService::Run(CallbackServerContext* context,
                                              const ByteBuffer* request, ByteBuffer* response,
                                              Method<Request, Response> method) {
  return RunUnary(context, request, response, [&](CallTransport* transport) {
    return std::make_shared<LocalCall>(
        core_, transport, LocalCall::Kind::kControl,
        RespondWith<Request, Response>([this, method, client = ClientAddress(context->peer())](
                                           const Request& message, Response* answer) {
          return (answers_.*method)(message, client, answer);
        }));
  });
}

grpc::ServerUnaryReactor* ControlService::GetServerInfo(CallbackServerContext* context,
                                                        const ByteBuffer* request,
                                                        ByteBuffer* response) {
  return Run(context, request, response, &ControlAnswers::GetServerInfo);
}

grpc::ServerUnaryReactor* ControlService::GetModelInfo(CallbackServerContext* context,
                                                       const ByteBuffer* request,
                                                       ByteBuffer* response) {
  return Run(context, request, response, &ControlAnswers::GetModelInfo);
}

grpc::ServerUnaryReactor* ControlService::GetLoad(CallbackServerContext* context,
                                                  const ByteBuffer* request, ByteBuffer* response) {
  return Run(context, request, response, &ControlAnswers::GetLoad);
}

grpc::ServerUnaryReactor* ControlService::GetRankTable(CallbackServerContext* context,
                                                       const ByteBuffer* request,
                                                       ByteBuffer* response) {
  return Run(context, request, response, &ControlAnswers::GetRankTable);
}

grpc::ServerUnaryReactor* ControlService::SetLimits(CallbackServerContext* context,
                                                    const ByteBuffer* request,
                                                    ByteBuffer* response) {
  return Run(context, request, response, &ControlAnswers::SetLimits);
}

grpc::ServerUnaryReactor* ControlService::Abort(CallbackServerContext* context,
                                                const ByteBuffer* request, ByteBuffer* response) {
  return Run(context, request, response, &ControlAnswers::Abort);
}

grpc::ServerUnaryReactor* ControlService::Drain(CallbackServerContext* context,
                                                const ByteBuffer* request, ByteBuffer* response) {
  return Run(context, request, response, &ControlAnswers::Drain);
}

}  // namespace bulkhead
