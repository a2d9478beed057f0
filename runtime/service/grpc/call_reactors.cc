#include "runtime/service/grpc/call_reactors.h"

#include <grpc/grpc.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "runtime/service/grpc/raw_message.h"
#include "runtime/service/grpc/status_conversion.h"

namespace bulkhead {
namespace {

class RawRequest final : public CallRequest {
 public:
  explicit RawRequest(const grpc::ByteBuffer* request)
      : CallRequest({.arrived_ns = static_cast<uint64_t>(MonotonicNanos())}),
        buffer_(TakeRequest(request)) {}
  size_t bytes() const override { return buffer_.Length(); }
  absl::Status Parse(google::protobuf::Message& message) override {
    return ParseRequest(buffer_, message);
  }

 private:
  grpc::ByteBuffer buffer_;
};

// Common to unary and streaming calls.
template <typename Reactor>
class CallReactor : public Reactor, public CallTransport {
 public:
  explicit CallReactor(grpc::CallbackServerContext* context) : context_(context) {}

  Reactor* Run(const grpc::ByteBuffer* request, const MakeCall& make) {
    call_ = make(this);
    call_->Start(std::make_unique<RawRequest>(request));
    return this;
  }

  void OnCancel() override {
    call_->OnCancelled(
        IsPastDeadline(begun_, context_->deadline(), std::chrono::system_clock::now()));
  }
  void OnDone() override {
    call_->OnClosed();
    delete this;
  }
  void SetTrailer(const std::string& key, const std::string& value) override {
    context_->AddTrailingMetadata(key, value);
  }
  std::function<bool()> Dropper() override {
    grpc_call* const call = context_->c_call();
    grpc_call_ref(call);
    return [held = std::shared_ptr<grpc_call>(call, grpc_call_unref)] {
      grpc_call_cancel_with_status(held.get(), GRPC_STATUS_RESOURCE_EXHAUSTED,
                                   "the client did not read the answer", nullptr);
      return true;
    };
  }

 protected:
  grpc::CallbackServerContext* const context_;
  const std::chrono::system_clock::time_point begun_ = std::chrono::system_clock::now();
  std::shared_ptr<Call> call_;
};

class UnaryReactor final : public CallReactor<grpc::ServerUnaryReactor> {
 public:
  UnaryReactor(grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : CallReactor(context), response_(response) {}

  void OnAccepted() override { StartSendInitialMetadata(); }
  void Write(MessagePieces /*message*/) override { BH_CHECK(false); }
  void End(const absl::Status& status, std::optional<MessagePieces> last) override {
    if (last.has_value()) *response_ = BufferOf(*std::move(last));
    Finish(EndWith(*context_, status));
  }

 private:
  grpc::ByteBuffer* const response_;
};

class StreamReactor final : public CallReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>> {
 public:
  using CallReactor::CallReactor;

  void OnAccepted() override { StartSendInitialMetadata(); }
  void Write(MessagePieces message) override {
    message_ = BufferOf(std::move(message));
    StartWrite(&message_);
  }
  void OnWriteDone(bool ok) override {
    message_.Clear();
    call_->OnWritten(ok);
  }
  void End(const absl::Status& status, std::optional<MessagePieces> last) override {
    if (!last.has_value()) return Finish(EndWith(*context_, status));
    message_ = BufferOf(*std::move(last));
    StartWriteAndFinish(&message_, grpc::WriteOptions(), EndWith(*context_, status));
  }

 private:
  grpc::ByteBuffer message_;  // used by the write in flight
};

}  // namespace

bool IsPastDeadline(std::chrono::system_clock::time_point begun,
                    std::chrono::system_clock::time_point deadline,
                    std::chrono::system_clock::time_point now) {
  constexpr auto kTimerSlack = std::chrono::milliseconds(20);
  if (deadline == std::chrono::system_clock::time_point::max()) return false;  // there is none
  return now + kTimerSlack + (deadline - begun) / 100 >= deadline;
}

grpc::ServerUnaryReactor* RunUnary(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                   const MakeCall& make) {
  return (new UnaryReactor(context, response))->Run(request, make);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* RunStream(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      const MakeCall& make) {
  return (new StreamReactor(context))->Run(request, make);
}

}  // namespace bulkhead
