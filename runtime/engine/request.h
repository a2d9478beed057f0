// A request on rank 0: what a client asks for, what it gets back, and the two seams between the
// service and the coordinator. Every request gets exactly one truthful end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead {

using TokenId = int32_t;

struct SamplingParams {
  float temperature = 1.0F;  // 0: greedy
  float top_p = 1.0F;        // (0, 1]
  int top_k = 0;             // 0: off
  float min_p = 0.0F;        // [0, 1]
  uint64_t seed = 0;
};

struct StoppingParams {
  int max_tokens = 0;  // of this generation, counted from the prompt's end (a resumed one's too)
  int min_tokens = 0;  // no end-of-sequence, stop token or stop string before so many
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_in_output = false;
};

// Takes logits of prompt tokens, tile by tile (`run --logits`, scoring). Called on rank 0's main
// thread.
class LogitsSink {
 public:
  virtual ~LogitsSink() = default;
  // Row i of `logits` [rows, V] belongs after the prompt token at first_position + i. Rows come in
  // ascending position; after a preemption they start again from 0, with the same bits.
  virtual absl::Status OnRows(int64_t first_position, int64_t rows, int64_t vocab_size,
                              const float* logits) = 0;
};

// Validated, complete: every default has been filled in.
struct Request {
  std::string request_id;       // unique among those in flight
  std::vector<TokenId> prompt;  // not empty
  SamplingParams sampling;
  StoppingParams stopping;
  int priority = 0;  // higher is more urgent
  // Prompt and generated tokens together; the coordinator's limit when it was submitted. 0: the
  // scheduler's.
  int max_model_len = 0;
  // Only requests of the same salt share cached blocks; at most kMaxCacheSaltBytes.
  std::string cache_salt;
  bool wants_text = true;
  bool skip_special_tokens = true;
  std::optional<int> num_logprobs;  // log probability of the sampled token and of the n best
  LogitsSink* prompt_logits =
      nullptr;  // outlives the request; a request with one computes its whole prompt
  // Resume: generated tokens that the client already has, and the bytes of their text that it has.
  std::vector<TokenId> emitted;
  uint64_t text_bytes_sent = 0;
};

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;
};

struct GeneratedToken {
  TokenId id = 0;
  std::optional<float> logprob;
  std::vector<TokenLogprob> top;
};

struct OutputDelta {
  uint64_t position = 0;  // index of the first token among the generated ones
  std::vector<GeneratedToken> tokens;
  std::string text;
};

enum class FinishReason { kEos, kStopToken, kStopString, kMaxTokens, kModelLength };

// What rank 0's main thread spent time on.
struct StepCosts {
  std::optional<uint64_t>
      collective_ns;  // absent where a device sums, and the thread does not wait
  uint64_t sampling_ns = 0;
  uint64_t text_ns = 0;  // detokenising, and looking for stop strings
};

struct RequestTimings {
  uint64_t queue_ns = 0;
  uint64_t first_token_ns = 0;
  uint64_t total_ns = 0;
  int preemptions = 0;
  // Of total_ns - queue_ns, whichever sequences it was spent for: this one waited for it.
  StepCosts costs;
};

struct RequestEnd {
  absl::Status status;  // ok: finished for `reason`; else CANCELLED, UNAVAILABLE, INTERNAL ...
  FinishReason reason = FinishReason::kMaxTokens;
  std::optional<std::string> stop_string;
  std::optional<TokenId> stop_token_id;
  int completion_tokens = 0;
  int cached_prompt_tokens = 0;  // that were not computed when it was admitted
  RequestTimings timings;
};

// Where a request's output goes. Called without any lock held, from the coordinator's thread (or,
// when the group is lost, from the watchdog's); never blocks.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void OnDelta(OutputDelta delta) = 0;
  virtual void OnEnd(RequestEnd end) = 0;  // exactly once, last
};

// What the service sees of the engine. Thread-safe.
class RequestInbox {
 public:
  virtual ~RequestInbox() = default;
  // Ok: `sink` will get an end. Refused at once: RESOURCE_EXHAUSTED (queue full), OUT_OF_RANGE (can
  // never fit the KV pool), ALREADY_EXISTS, UNAVAILABLE (starting, draining, a rank lost).
  virtual absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) = 0;
  // Unknown ids are no error. The request ends with `why` (CANCELLED, DEADLINE_EXCEEDED) and its
  // blocks are free at the next step.
  virtual void Cancel(absl::string_view request_id, absl::Status why) = 0;
};

// Why a request was refused or ended by the group, as a word for typed details: QUEUE_FULL,
// KV_BUDGET, PROMPT_TOO_LONG, DUPLICATE_REQUEST_ID, STARTING, DRAINING, GROUP_LOST; empty when the
// status carries none.
std::string RefusalReason(const absl::Status& status);
// Numbers that go with it, by name: KV_BUDGET has needed_blocks and rank_min_blocks.
using RefusalNumbers = std::map<std::string, int64_t>;
RefusalNumbers RefusalNumbersOf(const absl::Status& status);
// The same status, carrying `reason` and `numbers`.
absl::Status WithRefusalReason(absl::Status status, absl::string_view reason,
                               const RefusalNumbers& numbers = {});

}  // namespace bulkhead
