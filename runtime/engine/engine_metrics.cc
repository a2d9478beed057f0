#include "runtime/engine/engine_metrics.h"

#include <algorithm>
#include <iterator>

namespace bulkhead {
namespace {

constexpr double kFirstTokenBounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                        1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
constexpr double kTokenBounds[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                   .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
constexpr double kRequestBounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                     30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
constexpr double kIterationBounds[] = {1,   8,    16,   32,   64,   128,  256,
                                       512, 1024, 2048, 4096, 8192, 16384};
constexpr double kPreemptionBounds[] = {1, 2, 3, 4, 5, 10, 20};
// Up to max_model_len.
constexpr double kLengthBounds[] = {1,   2,   5,   10,  20,  50,  100, 200, 500, 1e3,
                                    2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6,
                                    5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9};
static_assert(std::size(kLengthBounds) <= FixedHistogram::kMaxBounds);
// Finer than kFirstTokenBounds around common service level targets.
constexpr double kLaneBounds[] = {.005, .01, .025, .05, .075, .1, .15, .2,  .3,  .4,
                                  .5,   .75, 1,    1.5, 2,    3,  4,   5,   7.5, 10,
                                  15,   20,  30,   45,  60,   90, 120, 300, 600};
static_assert(std::size(kLaneBounds) <= FixedHistogram::kMaxBounds);

absl::Span<const double> LengthBounds(int64_t max_model_len) {
  const auto* const end = std::upper_bound(std::begin(kLengthBounds), std::end(kLengthBounds),
                                           static_cast<double>(max_model_len));
  return {std::begin(kLengthBounds), static_cast<size_t>(end - std::begin(kLengthBounds))};
}

double Seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// 0 if a clock set by tests went back.
uint64_t Between(uint64_t from_ns, uint64_t to_ns) { return to_ns - std::min(from_ns, to_ns); }

}  // namespace

absl::string_view EndKindName(EndKind kind) {
  constexpr absl::string_view kNames[] = {"stop", "length", "time_limit", "abort", "error"};
  static_assert(std::size(kNames) == kNumEndKinds);
  return kNames[static_cast<int>(kind)];
}

EndKind EndKindOf(const absl::Status& status, FinishReason reason) {
  if (reason == FinishReason::kTimeLimit) return EndKind::kTimeLimit;
  if (absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) || absl::IsAborted(status)) {
    return EndKind::kAbort;
  }
  if (!status.ok()) return EndKind::kError;
  switch (reason) {
    case FinishReason::kMaxTokens:
    case FinishReason::kModelLength:
      return EndKind::kLength;
    case FinishReason::kTimeLimit:
      return EndKind::kTimeLimit;
    case FinishReason::kEos:
    case FinishReason::kStopToken:
    case FinishReason::kStopString:
      break;
  }
  return EndKind::kStop;
}

EngineMetrics::EngineMetrics(int64_t max_model_len)
    : iteration_tokens(kIterationBounds),
      first_token_seconds(kFirstTokenBounds),
      inter_token_seconds(kTokenBounds),
      time_per_output_token_seconds(kTokenBounds),
      e2e_seconds(kRequestBounds),
      queue_seconds(kRequestBounds),
      inference_seconds(kRequestBounds),
      prefill_seconds(kRequestBounds),
      decode_seconds(kRequestBounds),
      request_prompt_tokens(LengthBounds(max_model_len)),
      request_generation_tokens(LengthBounds(max_model_len)),
      request_max_tokens(LengthBounds(max_model_len)),
      request_computed_prompt_tokens(LengthBounds(max_model_len)),
      request_preemptions(kPreemptionBounds),
      first_token_by_lane{FixedHistogram(kLaneBounds), FixedHistogram(kLaneBounds)} {}

void EngineMetrics::CountStep(uint64_t tokens) {
  ++steps;
  iteration_tokens.Observe(static_cast<double>(tokens));
}

void EngineMetrics::CountPrompt(RequestFigures& request) {
  if (request.prompt_counted) return;
  request.prompt_counted = true;
  prompt_tokens += static_cast<uint64_t>(request.prompt_tokens);
  cached_prompt_tokens += static_cast<uint64_t>(request.cached_tokens);
}

void EngineMetrics::CountTokens(RequestFigures& request, int64_t tokens, uint64_t now_ns) {
  if (tokens <= 0) return;
  if (request.last_token_ns == 0) {
    CountPrompt(request);
    first_token_seconds.Observe(Seconds(now_ns));
    first_token_by_lane[static_cast<int>(request.lane)].Observe(Seconds(now_ns));
  } else {
    inter_token_seconds.Observe(Seconds(Between(request.last_token_ns, now_ns)));
  }
  request.last_token_ns = std::max<uint64_t>(now_ns, 1);
}

void EngineMetrics::CountEnd(RequestFigures& request, EndKind kind) {
  ++ends[static_cast<int>(kind)];
  if (kind == EndKind::kAbort || kind == EndKind::kError) return;
  // A request that was only scored has no token; one cut off by a limit may have none.
  const bool is_computed =
      kind == EndKind::kTimeLimit ? request.last_token_ns > 0 : request.admitted;
  if (is_computed) CountPrompt(request);
  const RequestTimings& times = request.timings;
  const uint64_t begin_ns = times.prepare_ns + times.queue_ns;  // of the first step
  const uint64_t first_ns = times.first_token_ns;
  const int64_t generated = request.completion_tokens - request.resumed_tokens;
  e2e_seconds.Observe(Seconds(times.total_ns));
  queue_seconds.Observe(Seconds(times.queue_ns));
  if (first_ns > 0) {
    const uint64_t decode_ns = Between(first_ns, request.last_token_ns);
    inference_seconds.Observe(Seconds(Between(begin_ns, request.last_token_ns)));
    prefill_seconds.Observe(Seconds(Between(begin_ns, first_ns)));
    decode_seconds.Observe(Seconds(decode_ns));
    if (generated > 1) {
      time_per_output_token_seconds.Observe(Seconds(decode_ns) /
                                            static_cast<double>(generated - 1));
    }
  }
  request_prompt_tokens.Observe(static_cast<double>(request.prompt_tokens));
  request_generation_tokens.Observe(static_cast<double>(generated));
  request_max_tokens.Observe(static_cast<double>(request.max_tokens));
  if (is_computed) {
    request_computed_prompt_tokens.Observe(
        static_cast<double>(std::max<int64_t>(0, request.prompt_tokens - request.cached_tokens)));
  }
  request_preemptions.Observe(times.preemptions);
}

}  // namespace bulkhead
