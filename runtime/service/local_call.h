// LocalCall: a call with one request and one answer that does not involve the engine, from its
// request to its status.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "runtime/service/call_transport.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

class LocalCall final : public Call, public std::enable_shared_from_this<LocalCall> {
 public:
  // Computes the answer to a request and clears the request as early as possible. `hold` then
  // covers the answer's bytes.
  using Respond = std::function<absl::StatusOr<MessagePieces>(
      ServiceCore& core, CallRequest& request, AnswerBudget::Hold& hold)>;
  enum class Kind {
    kWork,     // refused when the host is short of memory; a long request is queued behind other
               // long ones
    kControl,  // never refused or queued; its request is short
  };
  static constexpr int64_t kMaxControlBytes = int64_t{64} << 10;

  LocalCall(ServiceCore* core, CallTransport* transport, Kind kind, Respond respond)
      : core_(core), transport_(transport), kind_(kind), respond_(std::move(respond)) {}

  void Start(std::unique_ptr<CallRequest> request) override;
  void OnCancelled(bool /*deadline_passed*/) override { cancelled_ = true; }
  void OnClosed() override;

 private:
  void RespondAndEnd(CallRequest& request);
  void End(const absl::Status& status, std::optional<MessagePieces> answer = std::nullopt);

  ServiceCore* const core_;
  CallTransport* const transport_;
  const Kind kind_;
  const Respond respond_;
  std::atomic<bool> cancelled_{false};
  AnswerBudget::Hold hold_;
};

// For a control call: `answer` with messages in place of bytes.
template <typename Request, typename Response>
LocalCall::Respond RespondWith(std::function<absl::Status(const Request&, Response*)> answer) {
  return [answer = std::move(answer)](ServiceCore& core, CallRequest& request,
                                      AnswerBudget::Hold& hold) -> absl::StatusOr<MessagePieces> {
    Request message;
    BH_RETURN_IF_ERROR(request.Parse(message));
    Response response;
    BH_RETURN_IF_ERROR(answer(message, &response));
    std::string bytes = response.SerializeAsString();
    // Operators may also use the last part of the budget.
    BH_ASSIGN_OR_RETURN(hold, core.answers.Admit(0));
    BH_RETURN_IF_ERROR(core.answers.Grow(hold, static_cast<int64_t>(bytes.size()),
                                         AnswerBudget::Use::kAcceptedWork));
    return MessagePieces{std::move(bytes)};
  };
}

}  // namespace bulkhead
