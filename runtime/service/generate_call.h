// Generate and GenerateStream: one answer when the generation has ended, or events as it goes.
#pragma once

#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "runtime/service/engine_call.h"
#include "runtime/service/packed_message.h"
#include "runtime/service/prompt_logprobs.h"

namespace bulkhead {

// Maximum bytes buffered for a stream whose client reads more slowly than tokens arrive; beyond it
// the stream ends with RESOURCE_EXHAUSTED (SLOW_READER).
inline constexpr size_t kMaxBufferedBytes = size_t{1} << 20;

class GenerateCall : public EngineCall {
 protected:
  using EngineCall::EngineCall;
  // Maximum bytes of an answer's end: reason, stop string, usage, timings.
  static constexpr int64_t kMaxEndBytes = 768;

  absl::StatusOr<Parsed> Parse(CallRequest& request) final;
  virtual absl::Status Read(CallRequest& request, v1::GenerateRequest& message) {
    return request.Parse(message);
  }
  // Number of the field with the prompt's logprobs in the message that has them.
  virtual int PromptTokenField() const = 0;
  int64_t EchoBytes(const Request& request, const RequestRules& rules) const;
  // Refuses text that the answer could not begin with.
  virtual absl::Status CheckUnsentText(const Request& /*request*/) const {
    return absl::OkStatus();
  }
  // Bytes that the request holds in addition, until it ends.
  int64_t HeldBytes() const { return prompt_bytes_ + logits_bytes_; }
  // Without the echo and a resumed answer's unsent text: tokens and log probabilities exactly, text
  // at kTextBytesPerToken (host_quotas.h).
  static int64_t MaxGenerateBytes(const Request& request, const RequestRules& rules);
  // A packed v1::Finished, from an end that is ok.
  std::string FinishedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool echoes_prompt_ = false;  // constant once parsed
  // Set once parsed; the rank loop's thread fills it until the first delta or the end.
  std::optional<PromptLogprobs> prompt_logprobs_;
  // Filled by the rank loop's thread until the end; empty unless an embedding is wanted.
  std::vector<float> last_hidden_state_;
  bool normalizes_ = true;  // constant once the request is built
  // Constant once the request is built, in bytes of an answer: what is sent of the prompt, and the
  // parameters that change logits.
  int64_t prompt_bytes_ = 0;
  int64_t logits_bytes_ = 0;

 private:
  bool TimeLimitHasPassed(const v1::GenerateRequest& message) const;
  void CountHeldBytes(const Request& request, const RequestRules& rules);
};

// The whole generation in one response, packed incrementally.
class GenerateUnary : public GenerateCall {
 public:
  using GenerateCall::GenerateCall;

 protected:
  // The answer of a generation that ended ok.
  virtual MessagePieces ResponseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

 private:
  int PromptTokenField() const override;
  int64_t MaxAnswerBytes(const Request& request, const RequestRules& rules) const override;
  void AcceptLocked(const Request& request) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AppendLocked(OutputDelta delta) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Proceed() override;
  void TakePromptLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Everything except the text, which is appended at the end.
  PackedBytes fields_ ABSL_GUARDED_BY(mutex_);
  PackedBytes text_ ABSL_GUARDED_BY(mutex_);
  std::string scratch_ ABSL_GUARDED_BY(mutex_);
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
};

// Accepted, the prompt's log probabilities, deltas, Finished, then the status. One write is in
// flight at a time; output arriving meanwhile is merged into one delta, so that a slow reader gets
// fewer, larger events.
class GenerateStream final : public GenerateCall {
 public:
  using GenerateCall::GenerateCall;
  void OnWritten(bool ok) override;

 private:
  enum class Next { kNothing, kWrite, kWriteAndEnd, kEnd };

  int PromptTokenField() const override;
  int64_t MaxAnswerBytes(const Request& request, const RequestRules& rules) const override;
  absl::Status CheckUnsentText(const Request& request) const override;
  void AcceptLocked(const Request& request) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AppendLocked(OutputDelta delta) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Proceed() override;
  // `event`: what to write.
  Next NextLocked(std::string* event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `parts`, concatenated, are the message in `field` of the event.
  std::string EventLocked(int field, std::initializer_list<absl::string_view> parts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakePromptLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckReaderLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropPendingLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t PendingBytesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<int64_t>(accepted_.size() + tokens_.size() + text_.size());
  }

  std::string accepted_ ABSL_GUARDED_BY(mutex_);  // packed, until written
  // Merged deltas: packed tokens, and text.
  std::string tokens_ ABSL_GUARDED_BY(mutex_);
  std::string text_ ABSL_GUARDED_BY(mutex_);
  uint64_t position_ ABSL_GUARDED_BY(mutex_) = 0;  // position of the first merged token
  uint64_t num_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_position_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t tokens_written_ ABSL_GUARDED_BY(mutex_) = 0;
  bool write_in_flight_ ABSL_GUARDED_BY(mutex_) = false;
  // A write failed: the client is gone, nothing more is written.
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t event_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the write in flight
  int64_t share_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // reserved from the budget at admission
  // Also reserved until the first delta: a resumed answer's unsent text, which the engine holds.
  int64_t unsent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::string> prompt_pieces_ ABSL_GUARDED_BY(mutex_);  // packed; in prompt_bytes_
};

}  // namespace bulkhead
