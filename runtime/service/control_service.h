// bulkhead.v1.Control on gRPC's callback API: server information, abort, drain.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

inline constexpr uint32_t kMaxDrainSeconds = 7 * 24 * 3600;

// The implementation of Control, for both ports. Thread-safe. `peer` is gRPC's name of the client.
class ControlAnswers {
 public:
  explicit ControlAnswers(ServiceCore* core) : core_(core) {}

  absl::Status GetServerInfo(const v1::GetServerInfoRequest& request, v1::ServerInfo* response);
  absl::Status GetModelInfo(const v1::GetModelInfoRequest& request, v1::ModelInfo* response);
  absl::Status GetLoad(const v1::GetLoadRequest& request, v1::LoadInfo* response);
  absl::Status GetRankTable(const v1::GetRankTableRequest& request, v1::RankTable* response);
  absl::Status SetLimits(const v1::SetLimitsRequest& request, const std::string& peer,
                         v1::SetLimitsResponse* response);
  absl::Status Abort(const v1::AbortRequest& request, v1::AbortResponse* response);
  absl::Status Drain(const v1::DrainRequest& request, const std::string& peer,
                     v1::DrainResponse* response);

 private:
  ServiceCore* const core_;
};

using RawControl = v1::Control::WithRawCallbackMethod_GetServerInfo<
    v1::Control::WithRawCallbackMethod_GetModelInfo<
        v1::Control::WithRawCallbackMethod_GetLoad<v1::Control::WithRawCallbackMethod_GetRankTable<
            v1::Control::WithRawCallbackMethod_SetLimits<v1::Control::WithRawCallbackMethod_Abort<
                v1::Control::WithRawCallbackMethod_Drain<v1::Control::Service>>>>>>>;

// The service for gRPC's callback threads. Raw like Generation: the size of a parsed request is
// bounded, and its answer counted.
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
  ServiceCore* const core_;
  ControlAnswers answers_;
};

}  // namespace bulkhead
