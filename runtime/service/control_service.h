// bulkhead.v1.Control on gRPC's callback API: questions about the server, abort, drain.
#pragma once

#include <grpcpp/grpcpp.h>

#include "bulkhead/v1/generation.grpc.pb.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

inline constexpr uint32_t kMaxDrainSeconds = 7 * 24 * 3600;

class ControlService final : public v1::Control::CallbackService {
 public:
  explicit ControlService(ServiceCore* core) : core_(core) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const v1::GetModelInfoRequest* request,
                                         v1::ModelInfo* response) override;
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context,
                                    const v1::GetLoadRequest* request,
                                    v1::LoadInfo* response) override;
  grpc::ServerUnaryReactor* GetRankTable(grpc::CallbackServerContext* context,
                                         const v1::GetRankTableRequest* request,
                                         v1::RankTable* response) override;
  grpc::ServerUnaryReactor* SetLimits(grpc::CallbackServerContext* context,
                                      const v1::SetLimitsRequest* request,
                                      v1::SetLimitsResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const v1::AbortRequest* request,
                                  v1::AbortResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;

 private:
  ServiceCore* const core_;
};

}  // namespace bulkhead
