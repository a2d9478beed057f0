// Score: the log probabilities of a text's tokens in one response.
#pragma once

#include <memory>
#include <optional>

#include "runtime/engine/prompt_score.h"
#include "runtime/service/engine_call.h"

namespace bulkhead {

class ScoreCall final : public grpc::ServerUnaryReactor, public EngineCall {
 public:
  // Owned by itself until gRPC is done with it. `response` belongs to gRPC, until Finish.
  static grpc::ServerUnaryReactor* Run(ServiceCore* core, grpc::CallbackServerContext* context,
                                       const v1::ScoreRequest& message,
                                       v1::ScoreResponse* response);
  ScoreCall(ServiceCore* core, grpc::CallbackServerContext* context, v1::ScoreResponse* response,
            bool wants_logprobs)
      : EngineCall(core, context), response_(response), wants_logprobs_(wants_logprobs) {}

  void OnCancel() override { Cancelled(); }
  void OnDone() override;

 private:
  absl::StatusOr<Request> Build(const v1::ScoreRequest& message, const RequestRules& rules);
  void AcceptLocked(const Request& request) override;
  absl::Status AppendLocked(OutputDelta delta) override;
  void Proceed() override;
  void FillResponse();

  v1::ScoreResponse* const response_;
  const bool wants_logprobs_;
  // The engine writes to it until it has ended the request, and holds this call until then.
  std::optional<PromptScore> score_;
  bool finishing_ = false;
  std::shared_ptr<ScoreCall> self_;
};

}  // namespace bulkhead
