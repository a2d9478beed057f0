#include "runtime/service/engine_call.h"

#include <chrono>
#include <utility>

#include "base/status.h"
#include "runtime/service/raw_message.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

void EngineCall::Start(const grpc::ByteBuffer* message) {
  core_->calls.Begin(this, weak_from_this());
  grpc::ByteBuffer taken = TakeRequest(message);
  const absl::Status refused = core_->WhyRefused(taken.Length());
  if (!refused.ok()) return Begin([&](const RequestRules&) { return refused; });
  if (taken.Length() <= TextWorker::kLongMessageBytes) {
    return ParseAndBegin(std::move(taken), /*is_elsewhere=*/false);
  }
  const size_t bytes = taken.Length();
  PostToTextWorker(bytes, [this, taken = std::move(taken)]() mutable {
    ParseAndBegin(std::move(taken), /*is_elsewhere=*/true);
  });
}

void EngineCall::ParseAndBegin(grpc::ByteBuffer message, bool is_elsewhere) {
  absl::StatusOr<Parsed> parsed = Parse(message);
  if (!parsed.ok()) return Begin([&](const RequestRules&) { return parsed.status(); });
  if (is_elsewhere || parsed->text_bytes <= TextWorker::kLongTextBytes) {
    return Begin(std::move(parsed->build));
  }
  PostToTextWorker(parsed->text_bytes,
                   [this, build = std::move(parsed->build)]() mutable { Begin(std::move(build)); });
}

void EngineCall::PostToTextWorker(size_t bytes, std::function<void()> work) {
  const absl::Status taken = core_->text_worker.Post(
      bytes, [self = shared_from_this(), work = std::move(work)] { work(); });
  if (!taken.ok()) Begin([&](const RequestRules&) { return taken; });
}

void EngineCall::Begin(Build build) {
  absl::Status status = Submit(std::move(build));
  const bool admitted = status.ok();
  if (!admitted) EndNow(std::move(status));
  bool runs = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    runs = admitted && !end_.has_value();
  }
  if (runs) TakenOver();
  std::optional<absl::Status> cancelled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
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
  RequestRules rules = parts->rules;
  rules.started_max_model_len = rules.max_model_len;
  rules.max_model_len = parts->control->Limits().max_model_len;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    BH_RETURN_IF_ERROR(OverLocked());  // the client may be gone already
  }
  BH_ASSIGN_OR_RETURN(Request request, build(rules));
  build = nullptr;  // frees the message as well
  BH_ASSIGN_OR_RETURN(AnswerBudget::Hold hold,
                      core_->answers.Admit(MaxAnswerBytes(request, rules)));
  if (request.request_id.empty()) request.request_id = core_->NextRequestId();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    BH_RETURN_IF_ERROR(OverLocked());
    if (!core_->calls.Register(request.request_id)) {
      return absl::AlreadyExistsError(
          absl::StrCat("request_id ", Quoted(request.request_id), " is in flight; choose another"));
    }
    registered_ = true;
    hold_ = std::move(hold);
    request_id_ = request.request_id;
    prompt_tokens_ = static_cast<int>(request.prompt.size());
    max_tokens_ = EffectiveMaxTokens(request, rules.max_model_len);
    inbox_ = parts->inbox;
    AcceptLocked(request);
  }
  return parts->inbox->Submit(std::move(request), shared_from_this());
}

void EngineCall::OnDelta(OutputDelta delta) {
  absl::Status cut;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (end_.has_value()) return;
    cut = AppendLocked(std::move(delta));
  }
  if (cut.ok()) return Proceed();
  CancelInEngine(cut);
  EndNow(std::move(cut));
}

void EngineCall::OnEnd(RequestEnd end) { End(std::move(end)); }

void EngineCall::EndNow(absl::Status why) {
  RequestEnd end;
  end.status = std::move(why);
  End(std::move(end));
}

void EngineCall::End(RequestEnd end) {
  std::string request_id;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (end_.has_value()) return;
    request_id = request_id_;
  }
  end.status = core_->state.Explain(std::move(end.status), request_id);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (end_.has_value()) return;
    if (!end.status.ok()) core_->errors.Add(ReasonOf(end.status));
    end_ = std::move(end);
    // Before the client can receive the end and reuse the id.
    if (registered_) core_->calls.Release(request_id_);
  }
  Proceed();
}

void EngineCall::CancelInEngine(absl::Status why) { inbox_->Cancel(request_id_, std::move(why)); }

void EngineCall::Cancelled() {
  // gRPC reports a cancellation without its cause; if the deadline has passed, or is within the
  // timer's slack, that was the cause.
  constexpr auto kSlack = std::chrono::milliseconds(20);
  const bool late = context_->deadline() <= std::chrono::system_clock::now() + kSlack;
  absl::Status why = late ? absl::DeadlineExceededError("the call's deadline has passed")
                          : absl::CancelledError("cancelled by the client");
  why = WithReason(std::move(why), late ? reason::kDeadline : reason::kCancelled);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (end_.has_value()) return;
    cancelled_ = why;
    if (!settled_) return;  // handled by Begin()
  }
  CancelInEngine(std::move(why));
}

void EngineCall::Finishing() { core_->answers.unread().Add(call_, hold_.bytes()); }

void EngineCall::Closed() {
  core_->answers.unread().Remove(call_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);  // the engine may still be writing
    hold_.ShrinkTo(0);
  }
  core_->heap_trimmer.TrimLater();
  core_->calls.Close(this);
}

}  // namespace bulkhead
