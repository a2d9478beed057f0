#include "runtime/service/drain_call.h"

#include <optional>
#include <utility>

#include "base/status.h"
#include "runtime/service/local_call.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

void DrainCall::Start(std::unique_ptr<CallRequest> request) {
  bool waits = false;
  const absl::Status begun = Begin(*request, &waits);
  if (!begun.ok() || !waits) End(begun);
}

// The drain may end before this returns.
absl::Status DrainCall::Begin(CallRequest& request, bool* waits) {
  BH_RETURN_IF_ERROR(WhyTooLarge(request.bytes(), LocalCall::kMaxControlBytes));
  v1::DrainRequest message;
  BH_RETURN_IF_ERROR(request.Parse(message));
  *waits = message.wait();
  std::shared_ptr<const DrainEnd> ended;
  if (*waits) {
    transport_->OnAccepted();
    ended = {shared_from_this(), &drained_};  // alive as long as the call
  }
  return ControlAnswers(core_).Drain(message, client_, &response_, std::move(ended));
}

void DrainCall::OnDrained(const DrainOutcome& outcome) {
  response_.set_num_requests_finished(static_cast<uint32_t>(outcome.finished));
  response_.set_num_requests_cut(static_cast<uint32_t>(outcome.cut));
  End(absl::OkStatus());
}

void DrainCall::End(const absl::Status& status) {
  if (ended_.exchange(true)) return;
  std::optional<MessagePieces> answer;
  if (status.ok()) {
    answer = {response_.SerializeAsString()};
  } else {
    core_->errors.Add(status);
  }
  core_->answers.unread().Add(this, 0, transport_->Dropper());
  transport_->End(status, std::move(answer));
}

void DrainCall::OnCancelled(bool deadline_passed) { End(ClientGone(deadline_passed)); }

void DrainCall::OnClosed() {
  core_->answers.unread().Remove(this);
  core_->pressure.CallEnded();
}

}  // namespace bulkhead
