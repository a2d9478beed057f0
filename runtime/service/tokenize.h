// Tokenize and Detokenize: text to token ids, and back.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/service/call_transport.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

// See LocalCall::Respond.
absl::StatusOr<MessagePieces> Tokenize(ServiceCore& core, CallRequest& request,
                                       AnswerBudget::Hold& hold);
absl::StatusOr<MessagePieces> Detokenize(ServiceCore& core, CallRequest& request,
                                         AnswerBudget::Hold& hold);

}  // namespace bulkhead
