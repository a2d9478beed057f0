// EngineCall: one Generate, GenerateStream or Score from its request to its status. It takes its
// output from the engine (RequestSink) and has exactly one end: the engine's, or one that came
// first (the group was lost, the client reads too slowly). Its lock is never held while gRPC or the
// engine is called.
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

  // What the client sent, as a request by the rules of the moment. Owns all that it needs.
  using Build = std::function<absl::StatusOr<Request>(const RequestRules& rules)>;
  struct Parsed {
    size_t text_bytes = 0;
    Build build;
  };

  // Once, before the reactor is given to gRPC. A long message is parsed, and a long text is made
  // tokens, elsewhere and later, when the call may have ended.
  void Start(const grpc::ByteBuffer* message);

  void OnDelta(OutputDelta delta) final;
  void OnEnd(RequestEnd end) final;
  void EndNow(absl::Status why) final;

 protected:
  // The reactions of gRPC that all kinds share.
  void Cancelled();
  void Closed();
  // Before the call is finished: until Closed its answer is one that waits for its reader.
  void Finishing();

  virtual absl::StatusOr<Parsed> Parse(grpc::ByteBuffer& message) = 0;
  // What the answer may take at the most, by its length as it is known beforehand.
  virtual int64_t MostAnswerBytes(const Request& request, const RequestRules& rules) const = 0;

  // With mutex_ held: the request is about to be given to the engine.
  virtual void AcceptLocked(const Request& request) = 0;
  // With mutex_ held. Not ok: the call ends with this status and the engine is told to stop.
  virtual absl::Status AppendLocked(OutputDelta delta) = 0;
  // Without it, after every change: sends what can be sent.
  virtual void Proceed() = 0;
  // Without it, before anything else is sent: the engine took the request, and its end has not come
  // yet.
  virtual void TakenOver() {}

  ServiceCore* const core_;
  grpc::CallbackServerContext* const context_;  // not touched after Finish
  std::mutex mutex_;
  bool settled_ = false;           // the engine took or refused the request; nothing is sent before
  bool admitted_ = false;          // it took it
  std::optional<RequestEnd> end_;  // nothing changes after it is set
  std::string request_id_;         // these three are constant once the engine was asked
  int prompt_tokens_ = 0;
  int max_tokens_ = 0;
  AnswerBudget::Hold hold_;  // of the answer, from the admission to Closed

 private:
  void ParseAndBegin(grpc::ByteBuffer message, bool is_elsewhere);
  void Begin(Build build);
  void BeginElsewhere(size_t bytes, std::function<void()> work);
  // With mutex_ held: why the call is over before the engine has heard of it; ok: it is not.
  absl::Status OverLocked() const;
  absl::Status Submit(Build build);
  void End(RequestEnd end);
  void CancelInEngine(absl::Status why);

  grpc_call* const call_ = context_->c_call();
  RequestInbox* inbox_ = nullptr;  // null until the request was built
  bool registered_ = false;
  std::optional<absl::Status> cancelled_;  // the client went away; why
};

}  // namespace bulkhead
