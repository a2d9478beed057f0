#include "runtime/service/unary_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/grpc_status.h"
#include "runtime/service/raw_message.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

grpc::ServerUnaryReactor* UnaryCall::Run(ServiceCore* core, grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response, Kind kind, Respond respond) {
  auto* call = new UnaryCall(core, context, response, std::move(respond));
  grpc::ByteBuffer taken = TakeRequest(request);
  const size_t bytes = taken.Length();
  absl::Status refused =
      kind == Kind::kWork ? core->WhyRefused(bytes) : WhyTooLarge(bytes, kMaxControlBytes);
  if (!refused.ok()) {
    call->End(refused);
  } else if (kind == Kind::kControl || bytes <= TextWorker::kLongTextBytes) {
    call->RespondAndEnd(std::move(taken));
  } else {
    refused = core->text_worker.Post(bytes, [call, taken = std::move(taken)]() mutable {
      call->RespondAndEnd(std::move(taken));
    });
    if (!refused.ok()) call->End(refused);
  }
  return call;
}

void UnaryCall::RespondAndEnd(grpc::ByteBuffer request) {
  if (context_->IsCancelled()) {
    return End(WithReason(absl::CancelledError("cancelled by the client"), reason::kCancelled));
  }
  absl::StatusOr<grpc::ByteBuffer> response = respond_(*core_, request, hold_);
  if (response.ok()) *response_ = *std::move(response);
  End(response.status());
}

void UnaryCall::End(const absl::Status& status) {
  if (!status.ok()) core_->errors.Add(ReasonOf(status));
  hold_.ShrinkTo(static_cast<int64_t>(response_->Length()));
  core_->answers.unread().Add(call_, hold_.bytes());
  Finish(EndWith(*context_, status));
}

void UnaryCall::OnDone() {
  core_->answers.unread().Remove(call_);
  ServiceCore* const core = core_;
  delete this;  // releases the hold
  core->heap_trimmer.TrimLater();
}

}  // namespace bulkhead
