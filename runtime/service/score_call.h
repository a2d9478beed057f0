// Score: the log probabilities of a text's tokens in one response.
#pragma once

#include <memory>
#include <optional>

#include "runtime/engine/prompt_score.h"
#include "runtime/service/engine_call.h"

namespace bulkhead {

class ScoreCall final : public grpc::ServerUnaryReactor, public EngineCall {
 public:
  // Owns itself until gRPC is done with it. `response` belongs to gRPC, until Finish.
  static grpc::ServerUnaryReactor* Run(ServiceCore* core, grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* message, grpc::ByteBuffer* response);
  ScoreCall(ServiceCore* core, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : EngineCall(core, context), response_(response) {}

  void OnCancel() override { Cancelled(); }
  void OnDone() override;

 private:
  absl::StatusOr<Parsed> Parse(grpc::ByteBuffer& message) override;
  int64_t MaxAnswerBytes(const Request& request, const RequestRules& rules) const override;
  void AcceptLocked(const Request& request) override;
  absl::Status AppendLocked(OutputDelta delta) override;
  void TakenOver() override { StartSendInitialMetadata(); }
  void Proceed() override;
  std::string Packed() const;

  grpc::ByteBuffer* const response_;
  bool wants_logprobs_ = true;
  // Written by the engine until it ends the request; the engine holds this call until then.
  std::optional<PromptScore> score_;
  bool finishing_ = false;
  std::shared_ptr<ScoreCall> self_;
};

}  // namespace bulkhead
