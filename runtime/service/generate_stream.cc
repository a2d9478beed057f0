#include "runtime/service/generate_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/generate_request.h"
#include "runtime/service/generation_service.h"
#include "runtime/service/grpc_status.h"
#include "runtime/service/host_quotas.h"
#include "runtime/service/message_conversion.h"
#include "runtime/service/packed_message.h"
#include "runtime/service/raw_message.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

// Keeps capacity for a typical event.
void Empty(std::string& bytes) {
  constexpr size_t kMaxKeptBytes = 4096;
  if (bytes.capacity() > kMaxKeptBytes) bytes = std::string();
  bytes.clear();
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateStream::Run(
    ServiceCore* core, grpc::CallbackServerContext* context, const grpc::ByteBuffer* message) {
  EchoRequestId(*context);
  auto call = std::make_shared<GenerateStream>(core, context);
  call->self_ = call;
  call->Start(message);
  return call.get();
}

absl::StatusOr<EngineCall::Parsed> GenerateStream::Parse(grpc::ByteBuffer& message) {
  return ParseGenerate(message, echoes_prompt_);
}

// The part that it never has to request again.
int64_t GenerateStream::MaxAnswerBytes(const Request& request, const RequestRules& rules) const {
  return std::min(kStreamShareBytes, MaxGenerateBytes(request, rules, false)) +
         (echoes_prompt_
              ? MaxTokenIdsBytes(rules.vocab_size, static_cast<int64_t>(request.prompt.size()))
              : 0);
}

void GenerateStream::AcceptLocked(const Request& request) {
  PackNumber(v1::Accepted::kPromptTokensFieldNumber, prompt_tokens_, &accepted_);
  PackNumber(v1::Accepted::kSeedFieldNumber, request.sampling.seed, &accepted_);
  PackNumber(v1::Accepted::kMaxTokensFieldNumber, max_tokens_, &accepted_);
  if (echoes_prompt_) {
    PackTokenIds(v1::Accepted::kPromptTokenIdsFieldNumber, request.prompt, &accepted_);
  }
  next_position_ = request.emitted.size();
  share_bytes_ = hold_.bytes();
}

// A stream holds little for a client that reads. What it holds for one that does not is bounded,
// and is dropped first when other answers need the budget.
absl::Status GenerateStream::CheckReaderLocked() {
  const int64_t pending = PendingBytesLocked();
  int64_t limit = kMaxBufferedBytes;
  if (pending <= limit) {
    // In steps, for a reader that falls behind gradually.
    const int64_t steps = (pending + event_bytes_ + kStreamShareBytes - 1) / kStreamShareBytes;
    if (pending + event_bytes_ <= hold_.bytes() ||
        core_->answers.Grow(hold_, steps * kStreamShareBytes, AnswerBudget::Use::kNewWork).ok()) {
      return absl::OkStatus();
    }
    limit = hold_.bytes();
  }
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat("the client reads too slowly: more than ", limit,
                                                " bytes wait for it; read faster, or resume")),
      reason::kSlowReader, {{"limit_bytes", absl::StrCat(limit)}});
}

absl::Status GenerateStream::AppendLocked(OutputDelta delta) {
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
}

void GenerateStream::FillEventLocked(int field, std::initializer_list<absl::string_view> parts) {
  size_t bytes = 0;
  for (const absl::string_view part : parts) bytes += part.size();
  std::string event;
  event.reserve(bytes + request_id_.size() + core_->state.epoch().size() + 16);
  PackString(v1::GenerateEvent::kRequestIdFieldNumber, request_id_, &event);
  PackString(v1::GenerateEvent::kEpochFieldNumber, core_->state.epoch(), &event);
  PackHead(field, static_cast<int64_t>(bytes), &event);
  for (const absl::string_view part : parts) event.append(part.data(), part.size());
  event_bytes_ = static_cast<int64_t>(event.size());
  event_ = BufferOf(std::move(event));
  write_in_flight_ = true;
}

GenerateStream::Next GenerateStream::NextLocked() {
  if (!settled_ || write_in_flight_ || finishing_) return Next::kNothing;
  if (admitted_ && !broken_) {
    if (!accepted_.empty()) {
      FillEventLocked(v1::GenerateEvent::kAcceptedFieldNumber, {accepted_});
      accepted_ = std::string();
      return Next::kWrite;
    }
    if (!tokens_.empty() || !text_.empty()) {
      std::string head, text_head;
      PackNumber(v1::Delta::kPositionFieldNumber, position_, &head);
      PackHead(v1::Delta::kTextFieldNumber, static_cast<int64_t>(text_.size()), &text_head);
      FillEventLocked(v1::GenerateEvent::kDeltaFieldNumber, {head, tokens_, text_head, text_});
      tokens_written_ += num_tokens_;
      DropPendingLocked();
      return Next::kWrite;
    }
  }
  if (!end_.has_value()) return Next::kNothing;
  finishing_ = true;
  if (!end_->status.ok() || broken_) return Next::kFinish;
  FillEventLocked(v1::GenerateEvent::kFinishedFieldNumber,
                  {ToProto(*end_, prompt_tokens_).SerializeAsString()});
  return Next::kWriteAndFinish;
}

void GenerateStream::Proceed() {
  Next next = Next::kNothing;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    next = NextLocked();
    hold_.ShrinkTo(std::max(finishing_ ? 0 : share_bytes_, PendingBytesLocked() + event_bytes_));
  }
  // This object must not be used after Finish: the call may be over.
  switch (next) {
    case Next::kNothing:
      return;
    case Next::kWrite:
      return StartWrite(&event_);
    case Next::kWriteAndFinish:
      Finishing();
      return StartWriteAndFinish(&event_, grpc::WriteOptions(), grpc::Status::OK);
    case Next::kFinish:
      context_->AddTrailingMetadata("x-tokens-emitted", absl::StrCat(tokens_written_));
      Finishing();
      return Finish(EndWith(*context_, end_->status));
  }
}

void GenerateStream::OnWriteDone(bool ok) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    write_in_flight_ = false;
    event_.Clear();
    event_bytes_ = 0;
    if (!ok) {
      broken_ = true;
      DropPendingLocked();
    }
  }
  Proceed();
}

void GenerateStream::OnDone() {
  const std::shared_ptr<GenerateStream> self = std::move(self_);
  Closed();
}

}  // namespace bulkhead
