#include "launcher/clients/generation_client.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "launcher/clients/generate_output.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kLongestQueueWait = absl::Minutes(2);
// A wait that is too short to report.
constexpr absl::Duration kQuietWait = absl::Seconds(2);
constexpr absl::Duration kShortestRetryDelay = absl::Milliseconds(50);
constexpr absl::Duration kLongestRetryDelay = absl::Seconds(10);

// Collects the events of one stream into a result.
class EventReader {
 public:
  // `max_tokens` are asked for; 0: as many as the model allows.
  EventReader(GenerationResult* result, uint32_t max_tokens, size_t max_bytes,
              const std::function<void(absl::string_view)>& on_text)
      : result_(result), max_tokens_(max_tokens), max_bytes_(max_bytes), on_text_(on_text) {}

  // False: the stream is not one answer, nothing more of it is wanted.
  bool Read(const v1::GenerateEvent& event) {
    accepted_ = true;
    bytes_ += event.ByteSizeLong();
    if (bytes_ > max_bytes_) {
      broken_ = absl::DataLossError(
          absl::StrCat("the server's answer has more than ", max_bytes_, " bytes"));
      return false;
    }
    if (event.has_accepted()) {
      result_->seed = event.accepted().seed();
      const auto& ids = event.accepted().prompt_token_ids().ids();
      result_->prompt_token_ids.assign(ids.begin(), ids.end());
    } else if (event.has_prompt_logprobs()) {
      const auto& tokens = event.prompt_logprobs().tokens();
      result_->prompt_logprobs.insert(result_->prompt_logprobs.end(), tokens.begin(), tokens.end());
    } else if (event.has_delta()) {
      ReadDelta(event.delta());
    } else if (event.has_finished()) {
      finished_ = true;
      result_->finish_reason = event.finished().reason();
    }
    return broken_.ok();
  }

  bool accepted() const { return accepted_; }

  // What is wrong with the events so far.
  const absl::Status& broken() const { return broken_; }
  // The final status, given that the stream's was ok.
  absl::Status End() const {
    if (!finished_) return absl::DataLossError("the server's stream ended without a finish reason");
    return absl::OkStatus();
  }

 private:
  void ReadDelta(const v1::Delta& delta) {
    if (delta.position() != result_->tokens.size()) {
      broken_ =
          absl::DataLossError(absl::StrCat("the server continued at position ", delta.position(),
                                           " after ", result_->tokens.size(), " tokens"));
    }
    result_->tokens.insert(result_->tokens.end(), delta.tokens().begin(), delta.tokens().end());
    if (max_tokens_ > 0 && result_->tokens.size() > max_tokens_) {
      broken_ = absl::DataLossError(
          absl::StrCat("the server sent more than the ", max_tokens_, " tokens asked for"));
    }
    result_->text += delta.text();
    if (!delta.text().empty()) on_text_(delta.text());
  }

  GenerationResult* result_;
  const uint32_t max_tokens_;
  const size_t max_bytes_;
  size_t bytes_ = 0;
  const std::function<void(absl::string_view)>& on_text_;
  bool accepted_ = false;
  bool finished_ = false;
  absl::Status broken_;
};

}  // namespace

GenerationClient::GenerationClient(const std::shared_ptr<grpc::Channel>& channel,
                                   std::string target, CallsInFlight* calls,
                                   std::optional<absl::Duration> timeout, size_t max_answer_bytes)
    : stub_(v1::Generation::NewStub(channel)),
      target_(std::move(target)),
      calls_(calls),
      timeout_(timeout),
      max_answer_bytes_(max_answer_bytes) {}

grpc::Status GenerationClient::Stream(
    const v1::GenerateRequest& request, absl::Time deadline,
    const std::function<bool(const v1::GenerateEvent&)>& on_event) {
  grpc::ClientContext context;
  if (timeout_.has_value()) context.set_deadline(absl::ToChronoTime(deadline));
  calls_->Add(&context);
  const auto reader = stub_->GenerateStream(&context, request);
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
    if (!on_event(event)) context.TryCancel();
  }
  grpc::Status status = reader->Finish();
  calls_->Remove(&context);
  return status;
}

void GenerationClient::TellOfWait(const absl::Status& refusal) {
  std::call_once(told_of_wait_, [&] {
    const absl::Duration limit = timeout_.value_or(kLongestQueueWait);
    std::cerr << absl::StrCat(
                     "waiting, since the server refused: ", EscapeControls(refusal.message()),
                     "; each prompt is sent again for up to ", absl::FormatDuration(limit),
                     timeout_.has_value() ? "" : " (--timeout sets another limit)",
                     ", or until Ctrl-C\n")
              << std::flush;
  });
}

GenerationResult GenerationClient::Run(int64_t index, const v1::GenerateRequest& request,
                                       const std::function<void(absl::string_view)>& on_text,
                                       ClientTimes* times) {
  GenerationResult result;
  result.index = index;
  result.wants_logprobs = request.output().has_logprobs();
  const absl::Time sent = absl::Now();
  const absl::Time deadline = sent + timeout_.value_or(kLongestQueueWait);
  while (true) {
    const absl::Time begin = absl::Now();
    EventReader events(&result, request.stopping().max_tokens(), max_answer_bytes_, on_text);
    const grpc::Status status = Stream(request, deadline, [&](const v1::GenerateEvent& event) {
      if (event.has_delta() && !times->first_token.has_value())
        times->first_token = absl::Now() - begin;
      return events.broken().ok() && events.Read(event);
    });
    result.status = !events.broken().ok() ? events.broken()
                    : status.ok()         ? events.End()
                                          : StatusOf(status, target_);
    const std::optional<absl::Duration> hint = RetryDelayOf(result.status);
    if (!hint.has_value() || events.accepted()) return result;
    const absl::Duration delay = std::clamp(*hint, kShortestRetryDelay, kLongestRetryDelay);
    if (absl::Now() + delay > deadline) return result;
    if (absl::Now() + delay > sent + kQuietWait) TellOfWait(result.status);
    if (calls_->SleepUnlessCancelled(delay)) {
      result.status = absl::CancelledError("cancelled while it waited to be sent again");
      return result;
    }
  }
}

}  // namespace bulkhead
