// bulkhead.v1.Control on gRPC's callback API.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "bulkhead/v1/generation.grpc.pb.h"
#include "runtime/service/control_answers.h"
#include "runtime/service/drain_call.h"
#include "runtime/service/grpc/call_reactors.h"
#include "runtime/service/guard/connection_guard.h"
#include "runtime/service/local_call.h"

namespace bulkhead {

using RawControl = v1::Control::WithRawCallbackMethod_GetServerInfo<
    v1::Control::WithRawCallbackMethod_GetModelInfo<
        v1::Control::WithRawCallbackMethod_GetLoad<v1::Control::WithRawCallbackMethod_GetRankTable<
            v1::Control::WithRawCallbackMethod_SetLimits<v1::Control::WithRawCallbackMethod_Abort<
                v1::Control::WithRawCallbackMethod_Drain<v1::Control::Service>>>>>>>;

// Raw like Generation: the size of a parsed request is bounded, and its answer counted.
class ControlService final : public RawControl {
  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;
  using Buffer = grpc::ByteBuffer;

 public:
  explicit ControlService(ServiceCore* core) : core_(core), answers_(core) {}

  Reactor* GetServerInfo(Context* context, const Buffer* request, Buffer* response) override {
    return Run(context, request, response, &ControlAnswers::GetServerInfo);
  }
  Reactor* GetModelInfo(Context* context, const Buffer* request, Buffer* response) override {
    return Run(context, request, response, &ControlAnswers::GetModelInfo);
  }
  Reactor* GetLoad(Context* context, const Buffer* request, Buffer* response) override {
    return Run(context, request, response, &ControlAnswers::GetLoad);
  }
  Reactor* GetRankTable(Context* context, const Buffer* request, Buffer* response) override {
    return Run(context, request, response, &ControlAnswers::GetRankTable);
  }
  Reactor* SetLimits(Context* context, const Buffer* request, Buffer* response) override {
    return Run(context, request, response, &ControlAnswers::SetLimits);
  }
  Reactor* Abort(Context* context, const Buffer* request, Buffer* response) override {
    return Run(context, request, response, &ControlAnswers::Abort);
  }
  Reactor* Drain(Context* context, const Buffer* request, Buffer* response) override {
    return RunUnary(context, request, response, [&](CallTransport* transport) {
      return std::make_shared<DrainCall>(core_, transport, ClientAddress(context->peer()));
    });
  }

 private:
  template <typename Request, typename Response>
  Reactor* Run(Context* context, const Buffer* request, Buffer* response,
               absl::Status (ControlAnswers::*method)(const Request&, const std::string&,
                                                      Response*)) {
    return RunUnary(context, request, response, [&](CallTransport* transport) {
      return std::make_shared<LocalCall>(
          core_, transport, LocalCall::Kind::kControl,
          RespondWith<Request, Response>([this, method, client = ClientAddress(context->peer())](
                                             const Request& message, Response* answer) {
            return (answers_.*method)(message, client, answer);
          }));
    });
  }

  ServiceCore* const core_;
  ControlAnswers answers_;
};

}  // namespace bulkhead
