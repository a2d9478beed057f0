// vllm.grpc.engine.VllmEngine on gRPC's callback API, for gateways that know vLLM's service: an
// adapter to the calls of bulkhead.v1. Raw methods, like Generation.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "runtime/service/grpc/call_reactors.h"
#include "runtime/service/grpc/vllm_engine_answers.h"
#include "runtime/service/local_call.h"
#include "vllm/grpc/engine/vllm_engine.grpc.pb.h"

namespace bulkhead {

namespace vllm_raw {
using Api = ::vllm::grpc::engine::VllmEngine;
using Served = Api::WithRawCallbackMethod_Generate<Api::WithRawCallbackMethod_HealthCheck<
    Api::WithRawCallbackMethod_Abort<Api::WithRawCallbackMethod_GetModelInfo<
        Api::WithRawCallbackMethod_GetServerInfo<Api::WithRawCallbackMethod_GetLoads<
            Api::WithRawCallbackMethod_GetTokenizer<Api::Service>>>>>>>;
using Service = Api::WithRawCallbackMethod_Embed<Api::WithRawCallbackMethod_FlushCache<
    Api::WithRawCallbackMethod_StartProfile<Api::WithRawCallbackMethod_StopProfile<
        Api::WithRawCallbackMethod_SubscribeKvEvents<Served>>>>>;
}  // namespace vllm_raw

class VllmEngineService final : public vllm_raw::Service {
  using Reactor = grpc::ServerUnaryReactor;
  using StreamReactor = grpc::ServerWriteReactor<grpc::ByteBuffer>;
  using Context = grpc::CallbackServerContext;
  using Buffer = grpc::ByteBuffer;

 public:
  explicit VllmEngineService(ServiceCore* core) : core_(core), answers_(core) {}

  StreamReactor* Generate(Context* context, const Buffer* request) override;
  StreamReactor* GetTokenizer(Context* context, const Buffer* request) override;
  StreamReactor* SubscribeKvEvents(Context* context, const Buffer* request) override;
  Reactor* HealthCheck(Context* context, const Buffer* request, Buffer* response) override {
    return Run(context, request, response, &VllmEngineAnswers::HealthCheck);
  }
  Reactor* Abort(Context* context, const Buffer* request, Buffer* response) override {
    return Run(context, request, response, &VllmEngineAnswers::Abort);
  }
  Reactor* GetModelInfo(Context* context, const Buffer* request, Buffer* response) override {
    return Run(context, request, response, &VllmEngineAnswers::GetModelInfo);
  }
  Reactor* GetServerInfo(Context* context, const Buffer* request, Buffer* response) override {
    return Run(context, request, response, &VllmEngineAnswers::GetServerInfo);
  }
  Reactor* GetLoads(Context* context, const Buffer* request, Buffer* response) override {
    return Run(context, request, response, &VllmEngineAnswers::GetLoads);
  }
  Reactor* Embed(Context* context, const Buffer* request, Buffer* response) override;
  Reactor* FlushCache(Context* context, const Buffer* request, Buffer* response) override;
  Reactor* StartProfile(Context* context, const Buffer* request, Buffer* response) override;
  Reactor* StopProfile(Context* context, const Buffer* request, Buffer* response) override;

 private:
  template <typename Request, typename Response>
  Reactor* Run(Context* context, const Buffer* request, Buffer* response,
               absl::Status (VllmEngineAnswers::*method)(const Request&, Response*)) {
    return RunUnary(context, request, response, [&](CallTransport* transport) {
      return std::make_shared<LocalCall>(
          core_, transport, LocalCall::Kind::kControl,
          RespondWith<Request, Response>([this, method](const Request& message, Response* answer) {
            return (answers_.*method)(message, answer);
          }));
    });
  }
  Reactor* Refuse(Context* context, const Buffer* request, Buffer* response, const char* why);

  ServiceCore* const core_;
  VllmEngineAnswers answers_;
};

}  // namespace bulkhead
