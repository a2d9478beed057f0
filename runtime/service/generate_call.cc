#include "runtime/service/generate_call.h"

#include <chrono>
#include <utility>

#include "memory/status.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

void GenerateCall::Start(const v1::GenerateRequest& message) {
  core_->calls.Begin(this, weak_from_this());
  if (message.text().size() <= TextWorker::kLongTextBytes) return Begin(message);
  // A copy: the call may end, and the message with it, before its turn comes.
  core_->text_worker.Post([self = shared_from_this(), message] { self->Begin(message); });
}

void GenerateCall::Begin(const v1::GenerateRequest& message) {
  absl::Status status = Submit(message);
  const bool admitted = status.ok();
  if (!admitted) EndNow(std::move(status));
  std::optional<absl::Status> cancelled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    settled_ = true;
    admitted_ = admitted;
    cancelled = cancelled_;
  }
  // The client went away while the engine did not know the request yet.
  if (admitted && cancelled.has_value()) CancelInEngine(*std::move(cancelled));
  Proceed();
}

absl::Status GenerateCall::Submit(const v1::GenerateRequest& message) {
  BH_ASSIGN_OR_RETURN(const std::shared_ptr<const ServingParts> parts,
                      core_->state.ForNewRequest());
  BH_ASSIGN_OR_RETURN(Request request, BuildRequest(message, parts->rules));
  if (request.request_id.empty()) request.request_id = core_->NextRequestId();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (end_.has_value()) return end_->status;
    if (cancelled_.has_value()) return *cancelled_;
    if (!core_->calls.Register(request.request_id)) {
      return absl::AlreadyExistsError(
          absl::StrCat("request_id ", Quoted(request.request_id), " is in flight; choose another"));
    }
    registered_ = true;
    request_id_ = request.request_id;
    prompt_tokens_ = static_cast<int>(request.prompt.size());
    max_tokens_ = EffectiveMaxTokens(request, parts->rules.max_model_len);
    inbox_ = parts->inbox;
    AcceptLocked(request, message);
  }
  return parts->inbox->Submit(std::move(request), shared_from_this());
}

void GenerateCall::OnDelta(OutputDelta delta) {
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

void GenerateCall::OnEnd(RequestEnd end) { End(std::move(end)); }

void GenerateCall::EndNow(absl::Status why) {
  RequestEnd end;
  end.status = std::move(why);
  End(std::move(end));
}

void GenerateCall::End(RequestEnd end) {
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
    end_ = std::move(end);
    // Before the client can hear of the end and use the id again.
    if (registered_) core_->calls.Release(request_id_);
  }
  Proceed();
}

void GenerateCall::CancelInEngine(absl::Status why) { inbox_->Cancel(request_id_, std::move(why)); }

void GenerateCall::Cancelled() {
  // gRPC says that a call was cancelled, not why; a deadline that is over, or over within the
  // timer's slack, was the reason.
  constexpr auto kSlack = std::chrono::milliseconds(20);
  const bool late = context_->deadline() <= std::chrono::system_clock::now() + kSlack;
  absl::Status why = late ? absl::DeadlineExceededError("the call's deadline is over")
                          : absl::CancelledError("cancelled by the client");
  why = WithReason(std::move(why), late ? reason::kDeadline : reason::kCancelled);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (end_.has_value()) return;
    cancelled_ = why;
    if (!settled_) return;  // Begin() sees it
  }
  CancelInEngine(std::move(why));
}

void GenerateCall::Closed() { core_->calls.Close(this); }

}  // namespace bulkhead
