// VllmEmbedCall: one Embed call of VllmEngine.
#pragma once

#include "runtime/service/generate_call.h"

namespace bulkhead {

class VllmEmbedCall final : public GenerateUnary {
 public:
  using GenerateUnary::GenerateUnary;

 private:
  absl::Status Read(CallRequest& request, v1::GenerateRequest& message) override;
  MessagePieces ResponseLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
};

}  // namespace bulkhead
