// GenerateStream: Accepted, deltas, Finished, then the status. One write is in flight at a time;
// what comes meanwhile is joined into one delta, so that a slow reader gets fewer, larger events.
#pragma once

#include "runtime/service/engine_call.h"

namespace bulkhead {

class GenerateStream final : public grpc::ServerWriteReactor<v1::GenerateEvent>, public EngineCall {
 public:
  // Owned by itself until gRPC is done with it.
  static grpc::ServerWriteReactor<v1::GenerateEvent>* Run(ServiceCore* core,
                                                          grpc::CallbackServerContext* context,
                                                          const v1::GenerateRequest& message);
  GenerateStream(ServiceCore* core, grpc::CallbackServerContext* context, bool echoes_prompt)
      : EngineCall(core, context), echoes_prompt_(echoes_prompt) {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override { Cancelled(); }
  void OnDone() override;

 private:
  enum class Next { kNothing, kWrite, kWriteAndFinish, kFinish };

  void AcceptLocked(const Request& request) override;
  absl::Status AppendLocked(OutputDelta delta) override;
  void Proceed() override;
  Next NextLocked();
  void FillEventLocked();

  const bool echoes_prompt_;
  std::optional<v1::Accepted> accepted_;  // until it is written
  v1::Delta pending_;                     // joined deltas
  size_t pending_bytes_ = 0;
  uint64_t next_position_ = 0;
  uint64_t tokens_written_ = 0;
  bool write_in_flight_ = false;
  bool broken_ = false;  // a write failed: the client is gone, nothing more is written
  bool finishing_ = false;
  v1::GenerateEvent event_;  // belongs to the write in flight
  std::shared_ptr<GenerateStream> self_;
};

}  // namespace bulkhead
