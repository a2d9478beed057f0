// Shared by Generate and GenerateStream: building the request and bounding the answer.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "runtime/service/engine_call.h"

namespace bulkhead {

// For the end of an answer: reason, stop string, usage, timings.
inline constexpr int64_t kMaxEndBytes = 768;

absl::StatusOr<EngineCall::Parsed> ParseGenerate(grpc::ByteBuffer& message, bool& echoes_prompt);

// Tokens and log probabilities exactly, text at kTextBytesPerToken (host_quotas.h).
int64_t MaxGenerateBytes(const Request& request, const RequestRules& rules, bool echoes_prompt);

}  // namespace bulkhead
