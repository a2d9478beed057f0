// bulkhead.v1.Control on gRPC's callback API.
#pragma once

#include <grpcpp/grpcpp.h>

#include "bulkhead/v1/generation.grpc.pb.h"
#include "runtime/service/control_answers.h"

namespace bulkhead {

using RawControl = v1::Control::WithRawCallbackMethod_GetServerInfo<
    v1::Control::WithRawCallbackMethod_GetModelInfo<
        v1::Control::WithRawCallbackMethod_GetLoad<v1::Control::WithRawCallbackMethod_GetRankTable<
            v1::Control::WithRawCallbackMethod_SetLimits<v1::Control::WithRawCallbackMethod_Abort<
                v1::Control::WithRawCallbackMethod_Drain<v1::Control::Service>>>>>>>;

// Raw like Generation: the size of a parsed request is bounded, and its answer counted.
class ControlService final : public RawControl {
 public:
  explicit ControlService(ServiceCore* core) : core_(core), answers_(core) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetRankTable(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* SetLimits(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;

 private:
  template <typename Request, typename Response>
  using Method = absl::Status (ControlAnswers::*)(const Request&, const std::string&, Response*);
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                Method<Request, Response> method);

  ServiceCore* const core_;
  ControlAnswers answers_;
};

}  // namespace bulkhead
