// Generate: the whole generation in one response, packed incrementally.
#pragma once

#include "runtime/service/engine_call.h"
#include "runtime/service/packed_message.h"

namespace bulkhead {

class GenerateUnary final : public grpc::ServerUnaryReactor, public EngineCall {
 public:
  // Owns itself until gRPC is done with it. `response` belongs to gRPC, until Finish.
  static grpc::ServerUnaryReactor* Run(ServiceCore* core, grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* message, grpc::ByteBuffer* response);
  GenerateUnary(ServiceCore* core, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
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
  void FillResponseLocked();

  grpc::ByteBuffer* const response_;
  bool echoes_prompt_ = false;
  PackedBytes fields_;  // everything except the text, which is appended at the end
  PackedBytes text_;
  std::string scratch_;
  bool finishing_ = false;
  std::shared_ptr<GenerateUnary> self_;
};

}  // namespace bulkhead
