// GenerateStream: Accepted, deltas, Finished, then the status. One write is in flight at a time;
// output arriving meanwhile is merged into one delta, so that a slow reader gets fewer, larger
// events.
#pragma once

#include <initializer_list>

#include "runtime/service/engine_call.h"

namespace bulkhead {

class GenerateStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public EngineCall {
 public:
  // Owns itself until gRPC is done with it.
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Run(ServiceCore* core,
                                                         grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* message);
  GenerateStream(ServiceCore* core, grpc::CallbackServerContext* context)
      : EngineCall(core, context) {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override { Cancelled(); }
  void OnDone() override;

 private:
  enum class Next { kNothing, kWrite, kWriteAndFinish, kFinish };

  absl::StatusOr<Parsed> Parse(grpc::ByteBuffer& message) override;
  int64_t MaxAnswerBytes(const Request& request, const RequestRules& rules) const override;
  void AcceptLocked(const Request& request) override;
  absl::Status AppendLocked(OutputDelta delta) override;
  void Proceed() override;
  Next NextLocked();
  // `parts`, concatenated, are the message in `field` of the event.
  void FillEventLocked(int field, std::initializer_list<absl::string_view> parts);
  absl::Status CheckReaderLocked();
  void DropPendingLocked();
  int64_t PendingBytesLocked() const {
    return static_cast<int64_t>(accepted_.size() + tokens_.size() + text_.size());
  }

  bool echoes_prompt_ = false;
  std::string accepted_;  // packed, until written
  // Merged deltas: packed tokens, and text.
  std::string tokens_;
  std::string text_;
  uint64_t position_ = 0;  // of the first of them
  uint64_t num_tokens_ = 0;
  uint64_t next_position_ = 0;
  uint64_t tokens_written_ = 0;
  bool write_in_flight_ = false;
  bool broken_ = false;  // a write failed: the client is gone, nothing more is written
  bool finishing_ = false;
  grpc::ByteBuffer event_;  // used by the write in flight
  int64_t event_bytes_ = 0;
  int64_t share_bytes_ = 0;  // reserved from the budget at admission
  std::shared_ptr<GenerateStream> self_;
};

}  // namespace bulkhead
