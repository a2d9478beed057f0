// Tokenize and Detokenize: text to token ids, and back.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

// See UnaryCall::Respond.
absl::StatusOr<grpc::ByteBuffer> Tokenize(ServiceCore& core, grpc::ByteBuffer& request,
                                          AnswerBudget::Hold& hold);
absl::StatusOr<grpc::ByteBuffer> Detokenize(ServiceCore& core, grpc::ByteBuffer& request,
                                            AnswerBudget::Hold& hold);

}  // namespace bulkhead
