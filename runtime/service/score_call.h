// Score: the log probabilities of a text's tokens in one response.
#pragma once

#include <optional>
#include <string>

#include "runtime/engine/prompt_score.h"
#include "runtime/service/engine_call.h"

namespace bulkhead {

class ScoreCall final : public EngineCall {
 public:
  using EngineCall::EngineCall;

 private:
  absl::StatusOr<Parsed> Parse(CallRequest& request) override;
  int64_t MaxAnswerBytes(const Request& request, const RequestRules& rules) const override;
  void Proceed() override;
  std::string PackedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool wants_logprobs_ = true;  // constant once parsed
  // Written by the engine until it ends the request; the engine holds this call until then.
  std::optional<PromptScore> score_;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace bulkhead
