// bulkhead.v1.Generation on gRPC's callback API. Its methods are raw, so that requests are parsed
// and answers packed where their bytes are counted.
#pragma once

#include <grpcpp/grpcpp.h>

#include "bulkhead/v1/generation.grpc.pb.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

using RawGeneration = v1::Generation::WithRawCallbackMethod_Generate<
    v1::Generation::WithRawCallbackMethod_GenerateStream<
        v1::Generation::WithRawCallbackMethod_Score<v1::Generation::WithRawCallbackMethod_Tokenize<
            v1::Generation::WithRawCallbackMethod_Detokenize<v1::Generation::Service>>>>>;

class GenerationService final : public RawGeneration {
 public:
  explicit GenerationService(ServiceCore* core) : core_(core) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateStream(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  ServiceCore* const core_;
};

}  // namespace bulkhead
