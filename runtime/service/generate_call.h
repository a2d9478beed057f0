// GenerateCall: one Generate or GenerateStream from its request to its status. It takes its output
// from the engine (RequestSink) and has exactly one end: the engine's, or one that came first (the
// group was lost, the client reads too slowly). Its lock is never held while gRPC or the engine is
// called.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/engine/request.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

class GenerateCall : public RequestSink,
                     public OpenCall,
                     public std::enable_shared_from_this<GenerateCall> {
 public:
  GenerateCall(ServiceCore* core, grpc::CallbackServerContext* context)
      : core_(core), context_(context) {}

  // Once, before the reactor is given to gRPC. A long text is tokenised elsewhere, later.
  void Start(const v1::GenerateRequest& message);

  void OnDelta(OutputDelta delta) final;
  void OnEnd(RequestEnd end) final;
  void EndNow(absl::Status why) final;

 protected:
  // The reactions of gRPC that both kinds share.
  void Cancelled();
  void Closed();

  // With mutex_ held: the request is about to be given to the engine.
  virtual void AcceptLocked(const Request& request, const v1::GenerateRequest& message) = 0;
  // With mutex_ held. Not ok: the call ends with this status and the engine is told to stop.
  virtual absl::Status AppendLocked(OutputDelta delta) = 0;
  // Without it, after every change: sends what can be sent.
  virtual void Proceed() = 0;

  ServiceCore* const core_;
  grpc::CallbackServerContext* const context_;  // not touched after Finish
  std::mutex mutex_;
  bool settled_ = false;           // the engine took or refused the request; nothing is sent before
  bool admitted_ = false;          // it took it
  std::optional<RequestEnd> end_;  // nothing changes after it is set
  std::string request_id_;         // these three are constant once the engine was asked
  int prompt_tokens_ = 0;
  int max_tokens_ = 0;

 private:
  void Begin(const v1::GenerateRequest& message);
  absl::Status Submit(const v1::GenerateRequest& message);
  void End(RequestEnd end);
  void CancelInEngine(absl::Status why);

  RequestInbox* inbox_ = nullptr;  // null until the request was built
  bool registered_ = false;
  std::optional<absl::Status> cancelled_;  // the client went away; why
};

}  // namespace bulkhead
