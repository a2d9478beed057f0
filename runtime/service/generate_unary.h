// Generate: the whole generation in one response.
#pragma once

#include "runtime/service/engine_call.h"

namespace bulkhead {

class GenerateUnary final : public grpc::ServerUnaryReactor, public EngineCall {
 public:
  // Owned by itself until gRPC is done with it. `response` belongs to gRPC, until Finish.
  static grpc::ServerUnaryReactor* Run(ServiceCore* core, grpc::CallbackServerContext* context,
                                       const v1::GenerateRequest& message,
                                       v1::GenerateResponse* response);
  GenerateUnary(ServiceCore* core, grpc::CallbackServerContext* context,
                v1::GenerateResponse* response, bool echoes_prompt)
      : EngineCall(core, context), response_(response), echoes_prompt_(echoes_prompt) {}

  void OnCancel() override { Cancelled(); }
  void OnDone() override;

 private:
  void AcceptLocked(const Request& request) override;
  absl::Status AppendLocked(OutputDelta delta) override;
  void Proceed() override;

  v1::GenerateResponse* const response_;
  const bool echoes_prompt_;
  bool finishing_ = false;
  std::shared_ptr<GenerateUnary> self_;
};

}  // namespace bulkhead
