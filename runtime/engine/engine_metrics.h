// EngineMetrics: the coordinator's counts of steps and requests for /metrics. A fixed size, no
// allocation. Names and buckets of the histograms are vLLM's (vllm/v1/metrics/buckets.py, 0.33),
// except `first_token_by_lane`.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/engine/drafts.h"
#include "runtime/engine/fixed_histogram.h"
#include "runtime/engine/request.h"

namespace bulkhead {

// How a request ended.
enum class EndKind { kStop, kLength, kTimeLimit, kAbort, kError };
inline constexpr int kNumEndKinds = 5;
absl::string_view EndKindName(EndKind kind);  // "stop", "length" ... as vLLM's finished_reason
EndKind EndKindOf(const absl::Status& status, FinishReason reason);

// Queues of prompts: see runtime/engine/scheduler.h.
enum class PromptLane { kShort, kLong };
inline constexpr int kNumPromptLanes = 2;

// Figures of one request so far. Times are since its arrival.
struct RequestFigures {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // part of prompt_tokens
  int64_t completion_tokens = 0;  // including a resumed request's earlier ones
  int64_t resumed_tokens = 0;     // part of completion_tokens
  int64_t max_tokens = 0;         // as asked
  uint64_t last_token_ns = 0;     // 0: none so far
  PromptLane lane = PromptLane::kShort;
  bool admitted = false;  // it has run
  bool prompt_counted = false;
  RequestTimings timings;
};

struct EngineMetrics {
  explicit EngineMetrics(int64_t max_model_len);

  void CountStep(uint64_t tokens);
  // Tokens were emitted `now_ns` after the arrival; completion_tokens does not count them yet.
  void CountTokens(RequestFigures& request, int64_t tokens, uint64_t now_ns);
  // After timings.total_ns is set. Times and lengths are only counted for requests that finished.
  void CountEnd(RequestFigures& request, EndKind kind);

  uint64_t steps = 0;
  // Tokens of requests whose prompt has been computed, each once.
  uint64_t prompt_tokens = 0;
  uint64_t cached_prompt_tokens = 0;  // part of prompt_tokens
  std::array<uint64_t, kNumEndKinds> ends = {};

  FixedHistogram iteration_tokens;
  FixedHistogram first_token_seconds;
  FixedHistogram inter_token_seconds;
  FixedHistogram time_per_output_token_seconds;  // mean of each request
  FixedHistogram e2e_seconds;
  FixedHistogram queue_seconds;
  FixedHistogram inference_seconds;
  FixedHistogram prefill_seconds;
  FixedHistogram decode_seconds;
  FixedHistogram request_prompt_tokens;
  FixedHistogram request_generation_tokens;
  FixedHistogram request_max_tokens;
  FixedHistogram request_computed_prompt_tokens;
  FixedHistogram request_preemptions;
  std::array<FixedHistogram, kNumPromptLanes> first_token_by_lane;

  // Set when the metrics are read.
  double last_step_age_s = 0;   // since the last step ended; 0: no requests
  double oldest_waiting_s = 0;  // of the requests that have never run
  bool prefix_caching = false;
  int num_speculative_tokens = 0;  // per draft; 0: no drafts
  DraftTotals drafts;

 private:
  void CountPrompt(RequestFigures& request);
};

}  // namespace bulkhead
