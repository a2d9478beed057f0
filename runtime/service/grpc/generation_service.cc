#include "runtime/service/grpc/generation_service.h"

#include <memory>

#include "runtime/service/generate_call.h"
#include "runtime/service/grpc/call_reactors.h"
#include "runtime/service/grpc/status_conversion.h"
#include "runtime/service/local_call.h"
#include "runtime/service/score_call.h"
#include "runtime/service/tokenize.h"

namespace bulkhead {

using Unary = grpc::ServerUnaryReactor;
using grpc::ByteBuffer;
using grpc::CallbackServerContext;

Unary* GenerationService::Generate(CallbackServerContext* context, const ByteBuffer* request,
                                   ByteBuffer* response) {
  EchoRequestId(*context);
  return RunUnary(context, request, response, [this](CallTransport* transport) {
    return std::make_shared<GenerateUnary>(core_, transport);
  });
}

grpc::ServerWriteReactor<ByteBuffer>* GenerationService::GenerateStream(
    CallbackServerContext* context, const ByteBuffer* request) {
  EchoRequestId(*context);
  return RunStream(context, request, [this](CallTransport* transport) {
    return std::make_shared<bulkhead::GenerateStream>(core_, transport);
  });
}

Unary* GenerationService::Score(CallbackServerContext* context, const ByteBuffer* request,
                                ByteBuffer* response) {
  EchoRequestId(*context);
  return RunUnary(context, request, response, [this](CallTransport* transport) {
    return std::make_shared<ScoreCall>(core_, transport);
  });
}

Unary* GenerationService::Tokenize(CallbackServerContext* context, const ByteBuffer* request,
                                   ByteBuffer* response) {
  return RunUnary(context, request, response, [this](CallTransport* transport) {
    return std::make_shared<LocalCall>(core_, transport, LocalCall::Kind::kWork,
                                       bulkhead::Tokenize);
  });
}

Unary* GenerationService::Detokenize(CallbackServerContext* context, const ByteBuffer* request,
                                     ByteBuffer* response) {
  return RunUnary(context, request, response, [this](CallTransport* transport) {
    return std::make_shared<LocalCall>(core_, transport, LocalCall::Kind::kWork,
                                       bulkhead::Detokenize);
  });
}

}  // namespace bulkhead
