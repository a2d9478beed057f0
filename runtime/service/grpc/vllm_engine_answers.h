// The answers of VllmEngine except generations and the tokenizer: health, information, load, abort.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/service/control_answers.h"
#include "runtime/service/service_core.h"
#include "vllm/grpc/engine/vllm_engine.pb.h"

namespace bulkhead {

// Thread-safe.
class VllmEngineAnswers {
 public:
  explicit VllmEngineAnswers(ServiceCore* core) : core_(core), control_(core) {}

  absl::Status HealthCheck(const ::vllm::grpc::engine::HealthCheckRequest& request,
                           ::vllm::grpc::engine::HealthCheckResponse* response);
  absl::Status Abort(const ::vllm::grpc::engine::AbortRequest& request,
                     ::vllm::grpc::engine::AbortResponse* response);
  absl::Status GetModelInfo(const ::vllm::grpc::engine::GetModelInfoRequest& request,
                            ::vllm::grpc::engine::GetModelInfoResponse* response);
  absl::Status GetServerInfo(const ::vllm::grpc::engine::GetServerInfoRequest& request,
                             ::vllm::grpc::engine::GetServerInfoResponse* response);
  absl::Status GetLoads(const ::vllm::grpc::engine::GetLoadsRequest& request,
                        ::vllm::grpc::engine::GetLoadsResponse* response);

 private:
  ServiceCore* const core_;
  ControlAnswers control_;
};

}  // namespace bulkhead
