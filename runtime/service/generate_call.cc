#include "runtime/service/generate_call.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "runtime/engine/logits_processor.h"
#include "runtime/service/host_quotas.h"
#include "runtime/service/message_conversion.h"
#include "runtime/service/refusal.h"
#include "runtime/service/request_builder.h"
#include "runtime/service/structured_builder.h"
#include "runtime/service/text_worker.h"

namespace bulkhead {
namespace {

// Request id, epoch, seed, and the end.
constexpr int64_t kMaxHeadBytes = kMaxRequestIdBytes + 128;

// The time for following a resumed answer's tokens, in bytes that could be tokenised in it.
size_t ReplayWork(const v1::GenerateRequest& message) {
  constexpr size_t kBytesPerToken = 16;  // each is decoded twice
  constexpr size_t kBytesPerStop = 4;    // each is compared with its text
  const int stops = std::min(message.stopping().stop_size(), kMaxStopStrings);
  return static_cast<size_t>(message.resume().emitted_token_ids_size()) *
         (kBytesPerToken + stops * kBytesPerStop);
}

// Keeps capacity for a typical event.
void Empty(std::string& bytes) {
  constexpr size_t kMaxKeptBytes = 4096;
  if (bytes.capacity() > kMaxKeptBytes) bytes = std::string();
  bytes.clear();
}

}  // namespace

absl::StatusOr<EngineCall::Parsed> GenerateCall::Parse(CallRequest& request) {
  auto message = std::make_shared<v1::GenerateRequest>();
  BH_RETURN_IF_ERROR(Read(request, *message));
  echoes_prompt_ = message->output().prompt_token_ids();
  const size_t replayed = ReplayWork(*message);
  Parsed parsed{.request_id = message->request_id(),
                .text_bytes = message->text().size() + replayed};
  if (parsed.text_bytes > TextWorker::kLongTextBytes) {  // the whole message waits
    parsed.is_costly = replayed > 0;
    parsed.text_bytes = message->SpaceUsedLong() + replayed;
  }
  // The text worker compiles a grammar, and follows a resumed answer's, however short it is. An
  // already compiled one is kept until then.
  std::shared_ptr<structured::Automaton> compiled;
  if (message->has_structured()) {
    const auto parts = core_->state.ForNewRequest();
    if (parts.ok()) compiled = CompiledGrammar(*message, (*parts)->rules);
    parsed.is_costly = replayed > 0 || compiled == nullptr;
    if (parsed.is_costly) {
      parsed.text_bytes =
          std::max({parsed.text_bytes, message->SpaceUsedLong(), TextWorker::kLongTextBytes + 1});
    }
    if (replayed > 0) parsed.text_bytes = std::max(parsed.text_bytes, TextWorker::kGrammarBytes);
    if (compiled == nullptr) {
      parsed.grammar = absl::HashOf(message->structured().SerializeAsString()) | 1;  // not 0
    }
  }
  parsed.build = [this, message = std::move(message), compiled = std::move(compiled)](
                     const RequestRules& rules) -> absl::StatusOr<Request> {
    // The engine ends a request at once if its time ran out while it waited.
    if (TimeLimitHasPassed(*message)) message->clear_structured();
    BH_ASSIGN_OR_RETURN(Request request, BuildRequest(*message, rules));
    BH_RETURN_IF_ERROR(CheckUnsentText(request));
    if (message->output().embedding()) {
      request.last_hidden_state = &last_hidden_state_;
      normalizes_ = rules.embedding.normalizes;
    }
    CountHeldBytes(request, rules);
    if (request.num_prompt_logprobs.has_value()) {
      prompt_logprobs_.emplace(request.prompt, *request.num_prompt_logprobs, PromptTokenField());
      request.prompt_logits = &*prompt_logprobs_;
    }
    return request;
  };
  return parsed;
}

bool GenerateCall::TimeLimitHasPassed(const v1::GenerateRequest& message) const {
  const uint64_t limit_ns = uint64_t{message.time_limit_ms()} * 1'000'000;
  return limit_ns > 0 && static_cast<uint64_t>(MonotonicNanos()) >= arrived_ns_ + limit_ns;
}

void GenerateCall::CountHeldBytes(const Request& request, const RequestRules& rules) {
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const int64_t most = prompt_tokens + EffectiveMaxTokens(request, rules.max_model_len);
  logits_bytes_ = (LogitsProcessor::MaxBytes(request.logits, most, rules.num_speculative_tokens) +
                   kHeldPerAnswerByte - 1) /
                  kHeldPerAnswerByte;
  if (request.last_hidden_state != nullptr) {
    prompt_bytes_ = 2 * int64_t{rules.embedding.size} * static_cast<int64_t>(sizeof(float));
  }
  if (!request.num_prompt_logprobs.has_value()) return;
  prompt_bytes_ =
      PromptLogprobs::MaxBytes(rules.vocab_size, prompt_tokens, *request.num_prompt_logprobs);
}

int64_t GenerateCall::EchoBytes(const Request& request, const RequestRules& rules) const {
  if (!echoes_prompt_) return 0;
  return MaxTokenIdsBytes(rules.vocab_size, static_cast<int64_t>(request.prompt.size()));
}

int64_t GenerateCall::MaxGenerateBytes(const Request& request, const RequestRules& rules) {
  const int64_t tokens = std::max<int64_t>(0, EffectiveMaxTokens(request, rules.max_model_len) -
                                                  static_cast<int64_t>(request.emitted.size()));
  const int64_t token_bytes = MaxTokenBytes(rules.vocab_size, request.num_logprobs) +
                              (request.wants_text ? kTextBytesPerToken : 0);
  return kMaxHeadBytes + tokens * token_bytes + kMaxEndBytes;
}

std::string GenerateCall::FinishedLocked() const {
  v1::Finished finished = ToProto(*end_, prompt_tokens_);
  double squares = 0;
  for (const float value : last_hidden_state_) squares += static_cast<double>(value) * value;
  const double divisor = normalizes_ && squares > 0 ? std::sqrt(squares) : 1;
  finished.mutable_embedding()->Reserve(static_cast<int>(last_hidden_state_.size()));
  for (const float value : last_hidden_state_) {
    finished.add_embedding(static_cast<float>(value / divisor));
  }
  return finished.SerializeAsString();
}

int GenerateUnary::PromptTokenField() const {
  return v1::GenerateResponse::kPromptLogprobsFieldNumber;
}

int64_t GenerateUnary::MaxAnswerBytes(const Request& request, const RequestRules& rules) const {
  return MaxGenerateBytes(request, rules) + static_cast<int64_t>(request.text_bytes_unsent) +
         EchoBytes(request, rules) + HeldBytes();
}

void GenerateUnary::AcceptLocked(const Request& request) {
  std::string head;
  PackString(v1::GenerateResponse::kRequestIdFieldNumber, request.request_id, &head);
  PackString(v1::GenerateResponse::kEpochFieldNumber, core_->state.epoch(), &head);
  PackNumber(v1::GenerateResponse::kSeedFieldNumber, request.sampling.seed, &head);
  if (echoes_prompt_) {
    PackTokenIds(v1::GenerateResponse::kPromptTokenIdsFieldNumber, request.prompt, &head);
  }
  fields_.Append(head);
}

void GenerateUnary::TakePromptLocked() {
  if (!prompt_logprobs_.has_value()) return;
  for (const std::string& piece : prompt_logprobs_->TakePieces()) fields_.Append(piece);
}

absl::Status GenerateUnary::AppendLocked(OutputDelta delta) {
  TakePromptLocked();
  scratch_.clear();
  for (const GeneratedToken& token : delta.tokens) {
    PackToken(v1::GenerateResponse::kTokensFieldNumber, token, &scratch_);
  }
  const int64_t bytes = fields_.size() + text_.size() +
                        static_cast<int64_t>(scratch_.size() + delta.text.size()) + kMaxEndBytes +
                        logits_bytes_;
  BH_RETURN_IF_ERROR(core_->answers.Grow(hold_, bytes, AnswerBudget::Use::kAcceptedWork));
  fields_.Append(scratch_);
  text_.Append(delta.text);
  return absl::OkStatus();
}

MessagePieces GenerateUnary::ResponseLocked() {
  TakePromptLocked();
  std::string end;
  PackString(v1::GenerateResponse::kFinishedFieldNumber, FinishedLocked(), &end);
  if (text_.size() > 0) PackHead(v1::GenerateResponse::kTextFieldNumber, text_.size(), &end);
  fields_.Append(end);
  MessagePieces pieces = fields_.TakePieces();
  for (std::string& piece : text_.TakePieces()) pieces.push_back(std::move(piece));
  return pieces;
}

void GenerateUnary::Proceed() {
  absl::Status status;
  std::optional<MessagePieces> response;
  {
    const absl::MutexLock lock(&mutex_);
    if (!settled_ || !end_.has_value() || finishing_) return;
    finishing_ = true;
    status = end_->status;
    if (status.ok()) response = ResponseLocked();
    fields_.TakePieces();
    text_.TakePieces();
    hold_.ShrinkTo(response.has_value() ? SizeOf(*response) : 0);
  }
  End(status, std::move(response));
}

int GenerateStream::PromptTokenField() const { return v1::PromptLogprobs::kTokensFieldNumber; }

// The part reserved at admission, never to be requested again.
int64_t GenerateStream::MaxAnswerBytes(const Request& request, const RequestRules& rules) const {
  return std::min(kStreamShareBytes, MaxGenerateBytes(request, rules)) +
         static_cast<int64_t>(request.text_bytes_unsent) + EchoBytes(request, rules) + HeldBytes();
}

// More would end the stream as a slow reader's.
absl::Status GenerateStream::CheckUnsentText(const Request& request) const {
  if (request.text_bytes_unsent <= kMaxBufferedBytes) return absl::OkStatus();
  return InvalidField(
      "resume.text_bytes_sent",
      absl::StrCat(request.text_bytes_sent, " leaves ", request.text_bytes_unsent,
                   " bytes of the emitted tokens' text to be sent at once, which is more than the ",
                   kMaxBufferedBytes,
                   " that wait for a stream; give the bytes of the text that was "
                   "received, or use Generate"),
      reason::kInvalidValue,
      {{"value", absl::StrCat(request.text_bytes_unsent)},
       {"limit", absl::StrCat(kMaxBufferedBytes)}});
}

void GenerateStream::AcceptLocked(const Request& request) {
  PackNumber(v1::Accepted::kPromptTokensFieldNumber, prompt_tokens_, &accepted_);
  PackNumber(v1::Accepted::kSeedFieldNumber, request.sampling.seed, &accepted_);
  PackNumber(v1::Accepted::kMaxTokensFieldNumber, max_tokens_, &accepted_);
  if (echoes_prompt_) {
    PackTokenIds(v1::Accepted::kPromptTokenIdsFieldNumber, request.prompt, &accepted_);
  }
  next_position_ = request.emitted.size();
  unsent_bytes_ = static_cast<int64_t>(request.text_bytes_unsent);
  share_bytes_ = hold_.bytes() - unsent_bytes_;
}

void GenerateStream::TakePromptLocked() {
  if (!prompt_logprobs_.has_value()) return;
  for (std::string& piece : prompt_logprobs_->TakePieces()) {
    if (!broken_) prompt_pieces_.push_back(std::move(piece));
  }
}

// A stream holds little for a client that reads. What it holds for one that does not is bounded,
// and is dropped first when other answers need the budget.
absl::Status GenerateStream::CheckReaderLocked() {
  const int64_t pending = PendingBytesLocked();
  int64_t limit = kMaxBufferedBytes;
  if (pending <= limit) {
    // In steps, for a reader that falls behind gradually.
    const int64_t steps = (pending + event_bytes_ + kStreamShareBytes - 1) / kStreamShareBytes;
    if (HeldBytes() + pending + event_bytes_ <= hold_.bytes() ||
        core_->answers
            .Grow(hold_, HeldBytes() + steps * kStreamShareBytes, AnswerBudget::Use::kNewWork)
            .ok()) {
      return absl::OkStatus();
    }
    limit = hold_.bytes() - HeldBytes();
  }
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat("the client reads too slowly: more than ", limit,
                                                " bytes wait for it; read faster, or resume")),
      reason::kSlowReader, {{"limit_bytes", absl::StrCat(limit)}});
}

absl::Status GenerateStream::AppendLocked(OutputDelta delta) {
  TakePromptLocked();
  unsent_bytes_ = 0;
  if (broken_) return absl::OkStatus();
  if (delta.position != next_position_) {
    return absl::InternalError(absl::StrCat("a delta begins at ", delta.position,
                                            " where position ", next_position_, " was due"));
  }
  if (tokens_.empty()) position_ = delta.position;
  next_position_ += delta.tokens.size();
  num_tokens_ += delta.tokens.size();
  for (const GeneratedToken& token : delta.tokens) {
    PackToken(v1::Delta::kTokensFieldNumber, token, &tokens_);
  }
  text_ += delta.text;
  absl::Status cut = CheckReaderLocked();
  if (!cut.ok()) DropPendingLocked();
  return cut;
}

void GenerateStream::DropPendingLocked() {
  Empty(tokens_);
  Empty(text_);
  num_tokens_ = 0;
  prompt_pieces_.clear();
}

std::string GenerateStream::EventLocked(int field, std::initializer_list<absl::string_view> parts) {
  size_t bytes = 0;
  for (const absl::string_view part : parts) bytes += part.size();
  std::string event;
  event.reserve(bytes + request_id_.size() + core_->state.epoch().size() + 16);
  PackString(v1::GenerateEvent::kRequestIdFieldNumber, request_id_, &event);
  PackString(v1::GenerateEvent::kEpochFieldNumber, core_->state.epoch(), &event);
  PackHead(field, static_cast<int64_t>(bytes), &event);
  for (const absl::string_view part : parts) event.append(part.data(), part.size());
  event_bytes_ = static_cast<int64_t>(event.size());
  write_in_flight_ = true;
  return event;
}

GenerateStream::Next GenerateStream::NextLocked(std::string* event) {
  if (write_in_flight_ || finishing_) return Next::kNothing;
  if (admitted_ && !broken_) {
    if (!accepted_.empty()) {
      *event = EventLocked(v1::GenerateEvent::kAcceptedFieldNumber, {accepted_});
      accepted_ = std::string();
      return Next::kWrite;
    }
    if (end_.has_value() && end_->status.ok()) TakePromptLocked();
    if (!prompt_pieces_.empty()) {
      *event = EventLocked(v1::GenerateEvent::kPromptLogprobsFieldNumber, {prompt_pieces_.front()});
      prompt_pieces_.pop_front();
      event_bytes_ = 0;  // they are in HeldBytes
      return Next::kWrite;
    }
    if (!tokens_.empty() || !text_.empty()) {
      std::string head, text_head;
      PackNumber(v1::Delta::kPositionFieldNumber, position_, &head);
      PackHead(v1::Delta::kTextFieldNumber, static_cast<int64_t>(text_.size()), &text_head);
      *event = EventLocked(v1::GenerateEvent::kDeltaFieldNumber, {head, tokens_, text_head, text_});
      tokens_written_ += num_tokens_;
      DropPendingLocked();
      return Next::kWrite;
    }
  }
  if (!end_.has_value()) return Next::kNothing;
  finishing_ = true;
  if (!end_->status.ok() || broken_) return Next::kEnd;
  *event = EventLocked(v1::GenerateEvent::kFinishedFieldNumber, {FinishedLocked()});
  return Next::kWriteAndEnd;
}

void GenerateStream::Proceed() {
  Next next = Next::kNothing;
  std::string event;
  absl::Status status;
  uint64_t tokens_written = 0;
  {
    const absl::MutexLock lock(&mutex_);
    if (!settled_) return;  // its held bytes may still be counted
    next = NextLocked(&event);
    hold_.ShrinkTo(std::max(finishing_ ? 0 : share_bytes_,
                            PendingBytesLocked() + event_bytes_ + (finishing_ ? 0 : HeldBytes())) +
                   (finishing_ ? 0 : unsent_bytes_));
    if (end_.has_value()) status = end_->status;
    tokens_written = tokens_written_;
  }
  // The transport must not be used after its End: the call may be over.
  switch (next) {
    case Next::kNothing:
      return;
    case Next::kWrite:
      return transport_->Write({std::move(event)});
    case Next::kWriteAndEnd:
      return End(absl::OkStatus(), MessagePieces{std::move(event)});
    case Next::kEnd:
      // The engine may have ended ok while the client left.
      if (status.ok()) status = ClientGone();
      transport_->SetTrailer("x-tokens-emitted", absl::StrCat(tokens_written));
      return End(status, std::nullopt);
  }
}

void GenerateStream::OnWritten(bool ok) {
  {
    const absl::MutexLock lock(&mutex_);
    write_in_flight_ = false;
    event_bytes_ = 0;
    if (!ok) {
      broken_ = true;
      DropPendingLocked();
    }
  }
  Proceed();
}

}  // namespace bulkhead
