// The coordinator's state of a request. Private to it.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/engine/coordinator.h"
#include "runtime/engine/refusal.h"
#include "runtime/engine/stop_rule.h"
#include "runtime/tokenizer/text_stream.h"

namespace bulkhead {

struct Coordinator::EndCause {
  absl::Status status;  // ok: finished
  FinishReason reason = FinishReason::kMaxTokens;
  std::optional<std::string> stop_string;
  std::optional<TokenId> stop_token_id;
};

struct Coordinator::Active {
  // `stream_tokenizer` may be null. Takes the stop strings out of the request: nothing else uses
  // them.
  Active(const Tokenizer* stream_tokenizer, Request& request)
      : tokenizer(request.wants_text || !request.stopping.stop.empty() ? stream_tokenizer
                                                                       : nullptr),
        stream_options{.skip_special_tokens = request.skip_special_tokens,
                       .include_stop_in_output = request.stopping.include_stop_in_output,
                       .stop = std::exchange(request.stopping.stop, {}),
                       .forced = std::exchange(request.stopping.forced, {})},
        wants_text(request.wants_text),
        wants_embedding(request.last_hidden_state != nullptr),
        include_stop_in_output(request.stopping.include_stop_in_output),
        min_tokens(request.stopping.min_tokens),
        time_limit_ms(request.time_limit_ms),
        text_bytes_to_skip(request.text_bytes_sent) {}

  // Called right before the first token, because a waiting request should hold little memory; a
  // resumed request's stream is opened by Submit.
  void OpenStream(absl::Span<const TokenId> prompt) {
    if (!stream.has_value()) stream.emplace(tokenizer, prompt, std::move(stream_options));
  }

  // Removes from `text` (whole characters) what the client already has; INVALID_ARGUMENT if that
  // would split a character.
  absl::Status DropSentText(std::string& text) {
    const auto dropped = std::min<uint64_t>(text_bytes_to_skip, text.size());
    text.erase(0, dropped);
    text_bytes_to_skip -= dropped;
    if (!wants_text) text.clear();
    if (dropped == 0 || text.empty() || IsCharBoundary(text, 0)) return absl::OkStatus();
    text.clear();
    return WithReason(absl::InvalidArgumentError(
                          "resume.text_bytes_sent: ends within a character of the answer; give the "
                          "bytes of the text that was received"),
                      reason::kInvalidValue, {{"field", "resume.text_bytes_sent"}});
  }

  // The status at the time limit.
  absl::Status TimeLimitStatus() const {
    if (!wants_embedding) return absl::OkStatus();
    return WithReason(
        absl::DeadlineExceededError(absl::StrCat(
            "the embedding was not computed within the time_limit_ms of ", *time_limit_ms,
            "; give it more time, or try again when fewer requests are waiting")),
        reason::kDeadline);
  }

  // Appends one token to the request's text. Returns the cause if the request ends with it.
  std::optional<EndCause> Advance(TokenId token, std::optional<TokenFinish> finish,
                                  std::string& out);
  // Advance for all emitted tokens of a resumed request. Sets `text` and `ended`; `text` is at most
  // the text of those tokens.
  void Replay(const Request& request, const StopRule& rule);

  // The text held back, when the stream has ended.
  absl::StatusOr<std::string> TakeText() {
    std::string taken = std::exchange(text, {});
    if (!stream.has_value()) return taken;
    std::string rest = stream->TakeHeld();
    BH_RETURN_IF_ERROR(DropSentText(rest));
    return taken + rest;
  }

  std::shared_ptr<Live> live;  // once started
  const Tokenizer* const tokenizer;
  TextStream::Options stream_options;
  std::optional<TextStream> stream;
  const bool wants_text;
  const bool wants_embedding;
  const bool include_stop_in_output;
  const int min_tokens;
  const std::optional<uint32_t> time_limit_ms;
  std::optional<uint64_t> time_limit_ns;  // when it passes; once started
  uint64_t text_bytes_to_skip;            // the client of a resumed request already has them
  uint64_t num_generated = 0;             // includes the emitted ones of a resumed request
  std::string text;                       // produced while resuming; sent with the next token
  std::optional<EndCause> ended;          // with one of the emitted tokens
};

struct Coordinator::Live {
  std::string request_id;
  std::shared_ptr<RequestSink> sink;
  uint64_t arrived_ns = 0;    // at the front end
  uint64_t submitted_ns = 0;  // to the coordinator
  // Until started by the rank loop's thread.
  Request request;
  std::unique_ptr<Active> active;
  SequenceId sequence_id = 0;  // rank loop's thread only; 0: not started

  // Guarded by the coordinator's mutex, which cannot be named here.
  std::optional<absl::Status> cancel;
  bool busy = false;   // the rank loop's thread is calling the sink
  bool ended = false;  // the sink must not be called any more
  RequestFigures figures;
  std::optional<StepCosts> costs_before;  // costs when first scheduled

  // Requires the coordinator's mutex.
  void TakeCosts(const StepCosts& now) {
    if (!costs_before.has_value()) return;
    const StepCosts& before = *costs_before;
    StepCosts& costs = figures.timings.costs;
    if (now.collective_ns.has_value())
      costs.collective_ns = *now.collective_ns - *before.collective_ns;
    costs.sampling_ns = now.sampling_ns - before.sampling_ns;
    costs.text_ns = now.text_ns - before.text_ns;
  }
};

struct Coordinator::Delivery {
  std::shared_ptr<Live> live;
  std::optional<OutputDelta> delta;
  std::optional<EndCause> end;
  int preemptions = 0;
};

struct Coordinator::Arrivals {
  std::vector<std::shared_ptr<Live>> requests;
  std::vector<std::shared_ptr<Live>> cancels;
};

}  // namespace bulkhead
