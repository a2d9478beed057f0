#include "runtime/service/score_call.h"

#include <cmath>
#include <memory>
#include <utility>

#include "base/status.h"
#include "runtime/service/message_conversion.h"
#include "runtime/service/packed_message.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {

absl::StatusOr<EngineCall::Parsed> ScoreCall::Parse(CallRequest& request) {
  auto parsed = std::make_shared<v1::ScoreRequest>();
  BH_RETURN_IF_ERROR(request.Parse(*parsed));
  wants_logprobs_ = !parsed->has_token_logprobs() || parsed->token_logprobs();
  size_t text_bytes = parsed->text().size();
  if (text_bytes > TextWorker::kLongTextBytes) text_bytes = parsed->SpaceUsedLong();
  std::string id = parsed->request_id();
  return Parsed{std::move(id), text_bytes,
                [this, parsed](const RequestRules& rules) -> absl::StatusOr<Request> {
                  BH_ASSIGN_OR_RETURN(Request request, BuildScoreRequest(*parsed, rules));
                  score_.emplace(request.prompt);
                  request.prompt_logits = &*score_;
                  return request;
                }};
}

// Includes the score's own memory: tokens and log probabilities.
int64_t ScoreCall::MaxAnswerBytes(const Request& request, const RequestRules& rules) const {
  constexpr int64_t kBesides = 1024;
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  constexpr auto kTokenBytes = static_cast<int64_t>(2 * sizeof(float) + sizeof(TokenId));
  return kBesides + MaxTokenIdsBytes(rules.vocab_size, tokens) + tokens * kTokenBytes;
}

std::string ScoreCall::PackedLocked() const {
  const absl::Span<const float> logprobs = score_->logprobs();
  std::string out;
  PackString(v1::ScoreResponse::kRequestIdFieldNumber, request_id_, &out);
  PackString(v1::ScoreResponse::kEpochFieldNumber, core_->state.epoch(), &out);
  PackTokenIds(v1::ScoreResponse::kTokenIdsFieldNumber, score_->tokens(), &out);
  if (wants_logprobs_) {
    PackFloats(v1::ScoreResponse::kTokenLogprobsFieldNumber, logprobs, &out);
  }
  const double nll = score_->nll();
  PackDouble(v1::ScoreResponse::kNllFieldNumber, nll, &out);
  PackDouble(v1::ScoreResponse::kPerplexityFieldNumber,
             logprobs.empty() ? 1 : std::exp(nll / static_cast<double>(logprobs.size())), &out);
  PackString(v1::ScoreResponse::kTimingsFieldNumber,
             ToProto(*end_, prompt_tokens_).timings().SerializeAsString(), &out);
  return out;
}

void ScoreCall::Proceed() {
  absl::Status status;
  std::optional<MessagePieces> response;
  {
    const absl::MutexLock lock(&mutex_);
    if (!settled_ || !end_.has_value() || finishing_) return;
    finishing_ = true;
    status = end_->status;
    if (status.ok()) {
      response = MessagePieces{PackedLocked()};
      score_.reset();  // the engine has ended the request
    }
    hold_.ShrinkTo(response.has_value() ? SizeOf(*response) : 0);
  }
  End(status, std::move(response));
}

}  // namespace bulkhead
