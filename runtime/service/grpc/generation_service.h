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
  using Reactor = grpc::ServerUnaryReactor;
  using StreamReactor = grpc::ServerWriteReactor<grpc::ByteBuffer>;
  using Context = grpc::CallbackServerContext;
  using Buffer = grpc::ByteBuffer;

 public:
  explicit GenerationService(ServiceCore* core) : core_(core) {}

  Reactor* Generate(Context* context, const Buffer* request, Buffer* response) override;
  StreamReactor* GenerateStream(Context* context, const Buffer* request) override;
  Reactor* Score(Context* context, const Buffer* request, Buffer* response) override;
  Reactor* Tokenize(Context* context, const Buffer* request, Buffer* response) override;
  Reactor* Detokenize(Context* context, const Buffer* request, Buffer* response) override;

 private:
  ServiceCore* const core_;
};

}  // namespace bulkhead
