// EngineCall: one Generate, GenerateStream or Score call from its request to its status. Receives
// the engine's output (RequestSink) and has exactly one end: the engine's, or an earlier one (group
// lost, client reads too slowly). Its lock is never held during calls into transport or engine.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "runtime/engine/request.h"
#include "runtime/service/call_transport.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

class EngineCall : public Call,
                   public RequestSink,
                   public OpenCall,
                   public std::enable_shared_from_this<EngineCall> {
 public:
  EngineCall(ServiceCore* core, CallTransport* transport) : core_(core), transport_(transport) {}

  // Converts the client's message to a request under the current rules. Owns everything it needs.
  using Build = std::function<absl::StatusOr<Request>(const RequestRules& rules)>;
  struct Parsed {
    std::string request_id;  // the client's; empty: none
    size_t text_bytes = 0;
    Build build = nullptr;
    bool is_costly = false;  // for its size: queued on the text worker, even if already there
    size_t grammar = 0;      // as in TextWorker::Post
  };

  void Start(std::unique_ptr<CallRequest> request) final;
  void OnCancelled(bool deadline_passed) final;
  void OnClosed() final;

  void OnDelta(OutputDelta delta) final;
  void OnEnd(RequestEnd end) final;
  void EndNow(absl::Status why) final;
  void Cancel(absl::Status why) final;

 protected:
  virtual absl::StatusOr<Parsed> Parse(CallRequest& request) = 0;
  // Upper bound of the answer's bytes, from its maximum length.
  virtual int64_t MaxAnswerBytes(const Request& request, const RequestRules& rules) const = 0;

  // The request is about to be submitted to the engine.
  virtual void AcceptLocked(const Request& /*request*/) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {}
  // Not ok: the call ends with this status and the engine request is cancelled.
  virtual absl::Status AppendLocked(OutputDelta /*delta*/) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return absl::OkStatus();
  }
  // After every change: sends what can be sent.
  virtual void Proceed() ABSL_LOCKS_EXCLUDED(mutex_) = 0;

  // Ends the transport's side, once. Until OnClosed the answer counts as unread.
  void End(const absl::Status& status, std::optional<MessagePieces> last)
      ABSL_LOCKS_EXCLUDED(mutex_);

  ServiceCore* const core_;
  CallTransport* const transport_;
  uint64_t arrived_ns_ = 0;  // constant once started
  absl::Mutex mutex_;
  // The engine accepted or refused the request; nothing is sent before.
  bool settled_ ABSL_GUARDED_BY(mutex_) = false;
  bool admitted_ ABSL_GUARDED_BY(mutex_) = false;  // it was accepted
  // Final: nothing changes after it is set.
  std::optional<RequestEnd> end_ ABSL_GUARDED_BY(mutex_);
  // Constant once parsed; the next two once the request is submitted.
  std::string request_id_ ABSL_GUARDED_BY(mutex_);
  int prompt_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  int max_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  // The answer's budget, from admission to OnClosed.
  AnswerBudget::Hold hold_ ABSL_GUARDED_BY(mutex_);

 private:
  void ParseAndBegin(std::shared_ptr<CallRequest> request, bool is_elsewhere);
  absl::Status Register(const std::string& request_id);
  void BeginIfRoom(Build build);
  void Begin(Build build);
  void Refuse(const absl::Status& why);
  void PostToTextWorker(size_t bytes, std::function<void()> work, size_t grammar = 0);
  // Why the call ended before it reached the engine; ok: it has not.
  absl::Status OverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Submit(Build build);
  void SetEnd(RequestEnd end);
  void CancelInEngine(absl::Status why);

  // Null until the request is built.
  RequestInbox* inbox_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool registered_ ABSL_GUARDED_BY(mutex_) = false;
  // Set if the client or an operator cancelled.
  std::optional<absl::Status> cancelled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace bulkhead
