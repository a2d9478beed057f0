// A request's text: of each sampled token, and of the tokens that a resumed request has emitted.
#include <string>
#include <utility>

#include "runtime/engine/coordinator_state.h"

namespace bulkhead {

std::optional<Coordinator::EndCause> Coordinator::Active::Advance(TokenId token,
                                                                  std::optional<TokenFinish> finish,
                                                                  std::string& out) {
  ++num_generated;
  const bool stops = finish.has_value() && finish->stop_token_id.has_value();
  TextStream::Piece piece;
  if (!stops || include_stop_in_output) {  // otherwise the stopping token produces no text
    piece = stream->Add(token, static_cast<int64_t>(num_generated) >= min_tokens);
  }
  std::optional<EndCause> end;
  if (piece.stop_string.has_value()) {
    end = EndCause{{}, FinishReason::kStopString, std::move(piece.stop_string), {}};
  } else if (finish.has_value()) {
    piece.text += stream->Flush();
    end = EndCause{{}, finish->reason, {}, finish->stop_token_id};
  }
  if (absl::Status cut = DropSentText(piece.text); !cut.ok()) {
    return EndCause{std::move(cut), {}, {}, {}};
  }
  out += piece.text;
  return end;
}

void Coordinator::Active::Replay(const Request& request, const StopRule& rule) {
  OpenStream(request.prompt);
  for (const TokenId token : request.emitted) {
    const auto generated = static_cast<int64_t>(num_generated) + 1;
    const auto total = static_cast<int64_t>(request.prompt.size()) + generated;
    std::optional<TokenFinish> finish = rule.Check(token, generated, total);
    const bool stops = finish.has_value() && finish->stop_token_id.has_value();
    if (!stops && num_generated + 1 == request.logits.complete_after) {
      finish = TokenFinish{FinishReason::kEos, {}};
    }
    ended = Advance(token, std::move(finish), text);
    if (ended.has_value()) break;
  }
  text.shrink_to_fit();  // it may wait for a long time
}

}  // namespace bulkhead
