// EngineCall: one Generate, GenerateStream or Score call from its request to its status. Receives
// the engine's output (RequestSink) and has exactly one end: the engine's, or an earlier one (group
// lost, client reads too slowly). Its lock is never held during calls into gRPC or the engine.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/engine/request.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

class EngineCall : public RequestSink,
                   public OpenCall,
                   public std::enable_shared_from_this<EngineCall> {
 public:
  EngineCall(ServiceCore* core, grpc::CallbackServerContext* context)
      : core_(core), context_(context) {}

  // Converts the client's message to a request under the current rules. Owns everything it needs.
  using Build = std::function<absl::StatusOr<Request>(const RequestRules& rules)>;
  struct Parsed {
    size_t text_bytes = 0;
    Build build;
  };

  // Once, before the reactor is returned to gRPC. Long messages are parsed, and long texts
  // tokenised, later by another thread, when the call may already have ended.
  void Start(const grpc::ByteBuffer* message);

  void OnDelta(OutputDelta delta) final;
  void OnEnd(RequestEnd end) final;
  void EndNow(absl::Status why) final;

 protected:
  // Reactions to gRPC events, shared by all kinds of calls.
  void Cancelled();
  void Closed();
  // Before the call is finished: until Closed its answer counts as unread.
  void Finishing();

  virtual absl::StatusOr<Parsed> Parse(grpc::ByteBuffer& message) = 0;
  // Upper bound of the answer's bytes, from its maximum length.
  virtual int64_t MaxAnswerBytes(const Request& request, const RequestRules& rules) const = 0;

  // Requires mutex_: the request is about to be submitted to the engine.
  virtual void AcceptLocked(const Request& request) = 0;
  // Requires mutex_. Not ok: the call ends with this status and the engine request is cancelled.
  virtual absl::Status AppendLocked(OutputDelta delta) = 0;
  // Without mutex_, after every change: sends what can be sent.
  virtual void Proceed() = 0;
  // Without mutex_, before anything else is sent: the engine has accepted the request, and its end
  // has not arrived yet.
  virtual void TakenOver() {}

  ServiceCore* const core_;
  grpc::CallbackServerContext* const context_;  // not used after Finish
  std::mutex mutex_;
  bool settled_ = false;           // the engine accepted or refused the request; nothing is sent
                                   // before
  bool admitted_ = false;          // it was accepted
  std::optional<RequestEnd> end_;  // final: nothing changes after it is set
  std::string request_id_;         // these three are constant once the engine was asked
  int prompt_tokens_ = 0;
  int max_tokens_ = 0;
  AnswerBudget::Hold hold_;  // of the answer, from admission to Closed

 private:
  void ParseAndBegin(grpc::ByteBuffer message, bool is_elsewhere);
  void Begin(Build build);
  void PostToTextWorker(size_t bytes, std::function<void()> work);
  // Requires mutex_: why the call ended before it reached the engine; ok: it has not.
  absl::Status OverLocked() const;
  absl::Status Submit(Build build);
  void End(RequestEnd end);
  void CancelInEngine(absl::Status why);

  grpc_call* const call_ = context_->c_call();
  RequestInbox* inbox_ = nullptr;  // null until the request is built
  bool registered_ = false;
  std::optional<absl::Status> cancelled_;  // set if the client cancelled
};

}  // namespace bulkhead
