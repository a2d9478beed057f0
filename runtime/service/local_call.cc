#include "runtime/service/local_call.h"

#include <utility>

#include "runtime/service/refusal.h"

namespace bulkhead {

void LocalCall::Start(std::unique_ptr<CallRequest> request) {
  const size_t bytes = request->bytes();
  absl::Status refused =
      kind_ == Kind::kWork ? core_->WhyRefused(bytes) : WhyTooLarge(bytes, kMaxControlBytes);
  if (!refused.ok()) {
    request = nullptr;
    return End(refused);
  }
  if (kind_ == Kind::kControl || request->origin().on_text_worker ||
      bytes <= TextWorker::kLongTextBytes) {
    return RespondAndEnd(*request);
  }
  refused = core_->text_worker.Post(
      bytes, [self = shared_from_this(), taken = std::shared_ptr<CallRequest>(std::move(request))] {
        self->RespondAndEnd(*taken);
      });
  if (!refused.ok()) End(refused);
}

void LocalCall::RespondAndEnd(CallRequest& request) {
  if (cancelled_) return End(ClientGone());
  absl::StatusOr<MessagePieces> answer = respond_(*core_, request, hold_);
  if (!answer.ok()) return End(answer.status());
  End(absl::OkStatus(), *std::move(answer));
}

void LocalCall::End(const absl::Status& status, std::optional<MessagePieces> answer) {
  if (!status.ok()) core_->errors.Add(status);
  hold_.ShrinkTo(answer.has_value() ? SizeOf(*answer) : 0);
  core_->answers.unread().Add(this, hold_.bytes(), transport_->Dropper());
  transport_->End(status, std::move(answer));
}

void LocalCall::OnClosed() {
  core_->answers.unread().Remove(this);
  hold_.ShrinkTo(0);
  core_->pressure.CallEnded();
}

}  // namespace bulkhead
