#include "runtime/service/generation_service.h"

#include "runtime/service/conversions.h"
#include "runtime/service/generate_stream.h"
#include "runtime/service/generate_unary.h"
#include "runtime/service/score_call.h"
#include "runtime/service/unary_call.h"

namespace bulkhead {

grpc::ServerUnaryReactor* GenerationService::Generate(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return GenerateUnary::Run(core_, context, request, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::GenerateStream(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return bulkhead::GenerateStream::Run(core_, context, request);
}

grpc::ServerUnaryReactor* GenerationService::Score(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  return ScoreCall::Run(core_, context, request, response);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return UnaryCall::Run(core_, context, request, response, UnaryCall::Kind::kWork,
                        bulkhead::Tokenize);
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return UnaryCall::Run(core_, context, request, response, UnaryCall::Kind::kWork,
                        bulkhead::Detokenize);
}

}  // namespace bulkhead
