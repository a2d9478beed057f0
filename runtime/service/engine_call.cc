#include "runtime/service/engine_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

void EngineCall::Start(std::unique_ptr<CallRequest> request) {
  arrived_ns_ = request->origin().arrived_ns;
  core_->calls.Begin(this, weak_from_this());
  const size_t bytes = request->bytes();
  const absl::Status refused = core_->WhyRefused(bytes);
  if (!refused.ok()) {
    request = nullptr;
    return Refuse(refused);
  }
  const bool is_elsewhere = request->origin().on_text_worker;
  if (is_elsewhere || bytes <= TextWorker::kLongMessageBytes) {
    return ParseAndBegin(std::move(request), is_elsewhere);
  }
  PostToTextWorker(bytes,
                   [this, taken = std::shared_ptr<CallRequest>(std::move(request))]() mutable {
                     ParseAndBegin(std::move(taken), /*is_elsewhere=*/true);
                   });
}

void EngineCall::ParseAndBegin(std::shared_ptr<CallRequest> request, bool is_elsewhere) {
  absl::StatusOr<Parsed> parsed = Parse(*request);
  request = nullptr;
  if (!parsed.ok()) return Refuse(parsed.status());
  // From here on the call is found by its id, even while it waits.
  const absl::Status registered = Register(parsed->request_id);
  if (!registered.ok()) return Refuse(registered);
  if (!parsed->is_costly && (is_elsewhere || parsed->text_bytes <= TextWorker::kLongTextBytes)) {
    return BeginIfRoom(std::move(parsed->build));
  }
  const absl::Status full = core_->WhyFull();
  if (!full.ok()) return Refuse(full);
  PostToTextWorker(
      parsed->text_bytes,
      [this, build = std::move(parsed->build)]() mutable { BeginIfRoom(std::move(build)); },
      parsed->grammar);
}

// An id that is too long is refused when the request is built.
absl::Status EngineCall::Register(const std::string& request_id) {
  const absl::MutexLock lock(&mutex_);
  request_id_ = request_id.empty() ? core_->NewRequestId() : request_id;
  if (end_.has_value() || request_id_.size() > kMaxRequestIdBytes) return absl::OkStatus();
  registered_ = core_->calls.Register(request_id_, this);
  if (registered_) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("request_id ", Quoted(request_id_), " is in flight; choose another"));
}

void EngineCall::PostToTextWorker(size_t bytes, std::function<void()> work, size_t grammar) {
  const absl::Status taken = core_->text_worker.Post(
      bytes, [self = shared_from_this(), work = std::move(work)] { work(); }, grammar);
  if (!taken.ok()) Refuse(taken);
}

void EngineCall::Refuse(const absl::Status& why) {
  Begin([&](const RequestRules&) { return why; });
}

// A request that would be refused anyway is not built.
void EngineCall::BeginIfRoom(Build build) {
  const absl::Status full = core_->WhyFull();
  if (!full.ok()) return Refuse(full);
  Begin(std::move(build));
}

void EngineCall::Begin(Build build) {
  absl::Status status = Submit(std::move(build));
  const bool admitted = status.ok();
  if (!admitted) EndNow(std::move(status));
  bool runs = false;
  {
    const absl::MutexLock lock(&mutex_);
    runs = admitted && !end_.has_value();
  }
  if (runs) transport_->OnAccepted();
  std::optional<absl::Status> cancelled;
  {
    const absl::MutexLock lock(&mutex_);
    settled_ = true;
    admitted_ = admitted;
    cancelled = cancelled_;
  }
  // The client disconnected before the engine knew the request.
  if (admitted && cancelled.has_value()) CancelInEngine(*std::move(cancelled));
  Proceed();
}

absl::Status EngineCall::OverLocked() const {
  if (end_.has_value()) return end_->status;
  return cancelled_.value_or(absl::OkStatus());
}

absl::Status EngineCall::Submit(Build build) {
  BH_ASSIGN_OR_RETURN(const std::shared_ptr<const ServingParts> parts,
                      core_->state.ForNewRequest());
  const RequestRules rules = RulesNow(*parts);
  {
    const absl::MutexLock lock(&mutex_);
    BH_RETURN_IF_ERROR(OverLocked());  // the client may be gone already
  }
  BH_ASSIGN_OR_RETURN(Request request, build(rules));
  build = nullptr;  // frees the message as well
  BH_ASSIGN_OR_RETURN(AnswerBudget::Hold hold,
                      core_->answers.Admit(MaxAnswerBytes(request, rules)));
  request.arrived_ns = arrived_ns_;
  {
    const absl::MutexLock lock(&mutex_);
    BH_RETURN_IF_ERROR(OverLocked());
    hold_ = std::move(hold);
    request.request_id = request_id_;
    prompt_tokens_ = static_cast<int>(request.prompt.size());
    max_tokens_ = EffectiveMaxTokens(request, rules.max_model_len);
    inbox_ = parts->inbox;
    AcceptLocked(request);
  }
  core_->calls.Admit(this);  // before the engine can end it
  return parts->inbox->Submit(std::move(request), shared_from_this());
}

void EngineCall::OnDelta(OutputDelta delta) {
  absl::Status cut;
  {
    const absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    cut = AppendLocked(std::move(delta));
  }
  if (cut.ok()) return Proceed();
  CancelInEngine(cut);
  EndNow(std::move(cut));
}

void EngineCall::OnEnd(RequestEnd end) { SetEnd(std::move(end)); }

void EngineCall::EndNow(absl::Status why) {
  RequestEnd end;
  end.status = std::move(why);
  SetEnd(std::move(end));
}

void EngineCall::SetEnd(RequestEnd end) {
  std::string request_id;
  {
    const absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    request_id = request_id_;
  }
  end.status = core_->state.Explain(std::move(end.status), request_id);
  {
    const absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    if (!end.status.ok()) core_->errors.Add(end.status);
    end_ = std::move(end);
    // Before the client can receive the end and reuse the id.
    if (registered_) core_->calls.Release(request_id_);
  }
  Proceed();
}

void EngineCall::CancelInEngine(absl::Status why) {
  RequestInbox* inbox = nullptr;
  std::string request_id;
  {
    const absl::MutexLock lock(&mutex_);
    inbox = inbox_;
    request_id = request_id_;
  }
  inbox->Cancel(request_id, std::move(why), this);
}

void EngineCall::OnCancelled(bool deadline_passed) { Cancel(ClientGone(deadline_passed)); }

void EngineCall::Cancel(absl::Status why) {
  {
    const absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    cancelled_ = why;
    if (!settled_) return;  // handled by Begin()
  }
  CancelInEngine(std::move(why));
}

void EngineCall::End(const absl::Status& status, std::optional<MessagePieces> last) {
  int64_t bytes = 0;
  {
    const absl::MutexLock lock(&mutex_);
    bytes = hold_.bytes();
  }
  core_->answers.unread().Add(this, bytes, transport_->Dropper());
  transport_->End(status, std::move(last));
}

void EngineCall::OnClosed() {
  core_->answers.unread().Remove(this);
  {
    const absl::MutexLock lock(&mutex_);  // the engine may still be writing
    hold_.ShrinkTo(0);
  }
  core_->pressure.CallEnded();
  core_->calls.Close(this);
}

}  // namespace bulkhead
