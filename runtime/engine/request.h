// A request on rank 0: its parameters, its results, and the two interfaces between the service and
// the coordinator. Every request gets exactly one correct end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "memory/block_key.h"

namespace bulkhead {

namespace structured {
class Automaton;
class Matcher;
}  // namespace structured

using TokenId = int32_t;

inline constexpr int kMaxCacheSaltBytes = 128;

struct SamplingParams {
  float temperature = 1.0F;  // 0: greedy
  float top_p = 1.0F;        // (0, 1]
  int top_k = 0;             // 0: off
  float min_p = 0.0F;        // [0, 1]
  uint64_t seed = 0;
};

struct LogitBias {
  TokenId id = 0;
  float bias = 0;
};

// What changes logits before a token is sampled (logits_processor.h).
struct LogitsParams {
  float repetition_penalty = 1.0F;              // 1: off; ids in prompt or output
  float presence_penalty = 0.0F;                // 0: off; ids in the output
  float frequency_penalty = 0.0F;               // 0: off; times the id's count in the output
  std::vector<LogitBias> bias;                  // ascending ids
  std::vector<TokenId> allowed;                 // ascending; empty: all
  std::vector<std::vector<TokenId>> bad_words;  // each is not empty
  // The grammar of the answer (runtime/structured/); null: any text.
  std::shared_ptr<structured::Automaton> grammar;
  // Set by FollowGrammar (logits_processor.h) for a resumed request with a grammar: the grammar
  // state after its emitted tokens, or why they do not match, and the number of them after which
  // only the end may follow (0: more may follow).
  std::shared_ptr<const structured::Matcher> reached = nullptr;
  absl::Status reached_status = {};
  size_t complete_after = 0;

  bool penalises() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
  bool off() const {
    return !penalises() && bias.empty() && allowed.empty() && bad_words.empty() &&
           grammar == nullptr;
  }
};

struct StoppingParams {
  int max_tokens = 0;  // of this generation, counted from the end of the prompt (also if resumed)
  int min_tokens = 0;  // end-of-sequence, stop tokens and stop strings are ignored before this many
                       // tokens
  std::vector<std::string> stop;
  std::string
      forced;  // a beginning that the grammar gives the answer: `stop` is not looked for there
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_in_output = false;
};

// Receives logits of prompt tokens, tile by tile (`run --logits`, scoring). Called on rank 0's main
// thread.
class LogitsSink {
 public:
  virtual ~LogitsSink() = default;
  // Row i of `logits` [rows, V] follows the prompt token at first_position + i. Rows arrive in
  // ascending position; after a preemption they restart from 0, with the same bits.
  virtual absl::Status OnRows(int64_t first_position, int64_t rows, int64_t vocab_size,
                              const float* logits) = 0;
};

// Rows of a prompt whose embeddings are given, not looked up by token id.
struct EmbeddingSpan {
  ContentSpan where;        // positions in the prompt; `content` differs where rows differ
  std::vector<float> rows;  // [end - begin, D]
};

// Validated and complete: every default is filled in.
struct Request {
  std::string request_id;                 // unique among requests in flight
  std::vector<TokenId> prompt;            // not empty
  std::vector<EmbeddingSpan> embeddings;  // ascending, disjoint; the prompt's ids there are ignored
  SamplingParams sampling;
  LogitsParams logits;
  StoppingParams stopping;
  int priority = 0;  // higher is more urgent
  // Limit on prompt plus generated tokens; the coordinator's limit at submission. 0: the
  // scheduler's.
  int max_model_len = 0;
  // Only requests with the same salt share cached blocks; at most kMaxCacheSaltBytes.
  std::string cache_salt;
  int adapter = 0;           // 1-based index in ModelConfig::adapters; 0: no adapter
  std::string adapter_name;  // its name
  bool wants_text = true;
  bool skip_special_tokens = true;
  std::optional<int> num_logprobs;  // log probability of the sampled token and of the top n
  LogitsSink* prompt_logits =
      nullptr;  // outlives the request; disables the prefix cache for its prompt
  std::optional<int> num_prompt_logprobs;  // for the creator of that sink
  // Not null: outlives the request, and gets the final norm's output of the prompt's last token,
  // [D], before the end. Nothing is generated (max_tokens 0).
  std::vector<float>* last_hidden_state = nullptr;
  // Arrival time at the front end, on the coordinator's clock; 0: the time of submission.
  uint64_t arrived_ns = 0;
  std::optional<uint32_t> time_limit_ms;  // since arrived_ns; it ends at the next step boundary
  // Resume: generated tokens that the client already has, and how many bytes of their text.
  std::vector<TokenId> emitted;
  uint64_t text_bytes_sent = 0;
  // Upper bound of the bytes of their text that the client lacks: held until the first delta.
  uint64_t text_bytes_unsent = 0;
};

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;
};

struct GeneratedToken {
  TokenId id = 0;
  std::optional<float> logprob;
  std::vector<TokenLogprob> top;
  std::optional<int> rank = std::nullopt;  // with logprob; 1: the most likely id of the raw logits
};

struct OutputDelta {
  uint64_t position = 0;  // index of the first token among the generated ones
  std::vector<GeneratedToken> tokens;
  std::string text;
};

enum class FinishReason { kEos, kStopToken, kStopString, kMaxTokens, kModelLength, kTimeLimit };

// Outcome for the requests that were unfinished when a drain began.
struct DrainOutcome {
  size_t finished = 0;  // or cancelled
  size_t cut = 0;       // ended by its timeout
};
using DrainEnd = std::function<void(const DrainOutcome& outcome)>;
using DrainWaiter = std::weak_ptr<const DrainEnd>;

// How rank 0's main thread spent its time.
struct StepCosts {
  std::optional<uint64_t>
      collective_ns;  // absent if a device does the sums and the thread does not wait
  uint64_t sampling_ns = 0;
  uint64_t text_ns = 0;  // detokenisation and stop string matching
};

struct RequestTimings {
  uint64_t prepare_ns = 0;      // from the arrival to the submission
  uint64_t queue_ns = 0;        // from the submission to the first step, or to an end before it
  uint64_t first_token_ns = 0;  // from the arrival
  uint64_t total_ns = 0;        // from the arrival
  int preemptions = 0;
  // Part of total_ns - prepare_ns - queue_ns, for the whole batch: this request waited for it.
  StepCosts costs;
};

struct RequestEnd {
  absl::Status status;  // ok: finished for `reason`; else CANCELLED, UNAVAILABLE, INTERNAL ...
  FinishReason reason = FinishReason::kMaxTokens;
  std::optional<std::string> stop_string;
  std::optional<TokenId> stop_token_id;
  int completion_tokens = 0;
  int cached_prompt_tokens = 0;  // prefix cache hits at admission
  RequestTimings timings;
};

// Receives a request's output. Called without any lock held, from the coordinator's thread (or from
// the watchdog's when the group is lost); must not block.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void OnDelta(OutputDelta delta) = 0;
  virtual void OnEnd(RequestEnd end) = 0;  // exactly once, last
};

// The engine as seen by the service. Thread-safe.
class RequestInbox {
 public:
  virtual ~RequestInbox() = default;
  // Why Submit would refuse any request now; called before a request uses any resources.
  virtual absl::Status WhyFull() const { return absl::OkStatus(); }
  // Ok: `sink` will get an end. Refused at once, with a reason (refusal.h): RESOURCE_EXHAUSTED
  // (QUEUE_FULL), OUT_OF_RANGE (KV_BUDGET), INVALID_ARGUMENT (PROMPT_TOO_LONG), ALREADY_EXISTS
  // (DUPLICATE_REQUEST_ID), UNAVAILABLE (STARTING, DRAINING, RANK_LOST).
  virtual absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) = 0;
  // Unknown ids are ignored. The request ends with `why` (CANCELLED, DEADLINE_EXCEEDED) and its
  // blocks are freed at the next step. `sink`, if not null, identifies the request: once it has
  // ended, its id may be reused.
  virtual void Cancel(absl::string_view request_id, absl::Status why, const RequestSink* sink) = 0;
};

}  // namespace bulkhead
