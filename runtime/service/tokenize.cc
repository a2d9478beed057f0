#include "runtime/service/tokenize.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/service/packed_message.h"
#include "runtime/service/refusal.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {
namespace {

absl::StatusOr<const Tokenizer*> TokenizerOf(const ServingParts& parts) {
  if (parts.rules.tokenizer != nullptr) return parts.rules.tokenizer;
  return WithReason(
      absl::FailedPreconditionError("the model has no tokenizer.json; it only supports token ids"),
      reason::kTextNotSupported);
}

}  // namespace

absl::StatusOr<MessagePieces> Tokenize(ServiceCore& core, CallRequest& request,
                                       AnswerBudget::Hold& hold) {
  v1::TokenizeRequest message;
  BH_RETURN_IF_ERROR(request.Parse(message));
  BH_ASSIGN_OR_RETURN(const auto parts, core.state.ForControl(message));
  BH_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, TokenizerOf(*parts));
  // If there is no room for even the shortest answer, the work is not started.
  BH_ASSIGN_OR_RETURN(
      hold,
      core.answers.Admit(static_cast<int64_t>(tokenizer->MinTokenCount(message.text().size()))));
  const bool add_special = !message.has_add_special_tokens() || message.add_special_tokens();
  const absl::StatusOr<std::vector<TokenId>> ids = tokenizer->Encode(message.text(), add_special);
  if (!ids.ok()) return InvalidField("text", ids.status().message());
  message.Clear();
  const int64_t bytes = TokenIdsBytes(*ids);
  BH_RETURN_IF_ERROR(core.answers.Grow(hold, bytes, AnswerBudget::Use::kNewWork));
  std::string answer;
  PackTokenIds(v1::TokenizeResponse::kTokenIdsFieldNumber, *ids, &answer);
  return MessagePieces{std::move(answer)};
}

absl::StatusOr<MessagePieces> Detokenize(ServiceCore& core, CallRequest& request,
                                         AnswerBudget::Hold& hold) {
  v1::DetokenizeRequest message;
  BH_RETURN_IF_ERROR(request.Parse(message));
  BH_ASSIGN_OR_RETURN(const auto parts, core.state.ForControl(message));
  BH_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, TokenizerOf(*parts));
  const int vocab_size = std::max(parts->rules.vocab_size, tokenizer->vocab_size());
  const auto& ids = message.token_ids().ids();
  BH_RETURN_IF_ERROR(CheckTokenIds(ids, vocab_size, "token_ids"));
  const bool skip = !message.has_skip_special_tokens() || message.skip_special_tokens();
  // The result of so few bytes is counted when it is complete.
  constexpr int64_t kStepBytes = int64_t{64} << 10;
  constexpr int64_t kHeadBytes = 16;
  PackedBytes text;
  const auto append = [&](const std::string& piece) -> absl::Status {
    const int64_t bytes = text.size() + static_cast<int64_t>(piece.size()) + kHeadBytes;
    if (bytes > hold.bytes()) {
      BH_RETURN_IF_ERROR(core.answers.Grow(hold, bytes + kStepBytes, AnswerBudget::Use::kNewWork));
    }
    text.Append(piece);
    return absl::OkStatus();
  };
  BH_ASSIGN_OR_RETURN(hold, core.answers.Admit(std::min<int64_t>(
                                kStepBytes, kHeadBytes + 16 * int64_t{ids.size()})));
  const std::unique_ptr<TextDecoder> decoder = tokenizer->NewTextDecoder({}, skip);
  for (const uint32_t id : ids) {
    BH_RETURN_IF_ERROR(append(decoder->Add(static_cast<TokenId>(id))));
  }
  BH_RETURN_IF_ERROR(append(decoder->Finish()));
  std::string head;
  if (text.size() > 0) PackHead(v1::DetokenizeResponse::kTextFieldNumber, text.size(), &head);
  MessagePieces pieces = text.TakePieces();
  pieces.insert(pieces.begin(), std::move(head));
  return pieces;
}

}  // namespace bulkhead
