// What a benchmark's records amount to. Pure. bench/serve/definitions.cc says in words what each
// metric is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/bench/serve/request_record.h"
#include "launcher/bench/serve/statistics.h"

namespace bulkhead {

// Limits that a request must keep, all of them, to be a good one; counted from its scheduled
// arrival. Milliseconds.
struct Goodput {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;

  bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
  bool operator==(const Goodput&) const = default;
};

// Milliseconds, over completed requests.
struct Latencies {
  // From the scheduled arrival on:
  Distribution ttft, e2el;
  // From the moment of sending on, as vLLM counts:
  Distribution ttft_from_send, e2el_from_send;
  Distribution tpot;       // one value per request of two tokens or more
  Distribution itl;        // one value per token behind the first message's
  Distribution chunk_gap;  // one value per message behind the first: vLLM's ITL
  Distribution
      send_delay;  // sent - scheduled: the wait for one of max_concurrency, and our own lag
};

// Milliseconds; of completed requests whose end carried the server's times.
struct TimeSplit {
  int64_t count = 0;
  Estimate send_delay, queue, prefill, decode;
  // What is left of the time from sending to the end: network, gRPC, tokenising.
  Estimate rest;
  // What prefill and decode together went to; parts that no request's end carried are absent, and
  // in `computing`: the model, scheduling, and steps that ran without the request.
  std::optional<Estimate> collective, sampling, detokenise;
  Estimate computing;
};

struct Window {
  double begin_s = 0;
  double end_s = 0;
};

struct Throughput {
  double duration_s = 0;  // of all runs together
  Estimate requests_per_s, output_tokens_per_s, total_tokens_per_s;
  std::optional<double> good_requests_per_s;
};

// One run on its own, for the spread.
struct RunFigures {
  double duration_s = 0;
  int completed = 0;
  int failed = 0;
  double request_throughput = 0, output_throughput = 0;
  double mean_ttft_ms = 0, mean_tpot_ms = 0, mean_e2el_ms = 0;
};

struct BenchSummary {
  int completed = 0;
  int failed = 0;
  int unfinished = 0;
  int64_t input_tokens = 0;      // of completed requests
  int64_t output_tokens = 0;     // likewise
  double peak_tokens_per_s = 0;  // in any whole second since the first was sent
  int peak_concurrency = 0;
  Throughput throughput;
  Latencies latencies;
  int good = 0;
  TimeSplit split;
  int64_t preemptions = 0;
  int64_t cached_prompt_tokens = 0;
  std::map<std::string, int> failures_by_code;
  std::map<std::string, int> failures_by_reason;
  std::vector<RunFigures> runs;
  // From each run's first end to its last arrival: neither ramp-up nor tail. Absent where too few
  // requests were due in it.
  struct Steady {
    std::vector<Window> windows;  // of each run
    int requests = 0;
    Throughput throughput;
    Latencies latencies;
  };
  std::optional<Steady> steady;
};

struct SummaryOptions {
  std::vector<double> percents = {90, 95, 99, 99.9};
  Goodput goodput;
};

BenchSummary Summarize(const std::vector<RunRecord>& runs, const SummaryOptions& options);

// Of a completed request, in seconds; absent where it has no such thing.
std::optional<double> FirstToken(const RequestRecord& request);
double LastToken(const RequestRecord& request);  // its end, when it has no token
std::optional<double> TimePerOutputToken(const RequestRecord& request);
// One value per token behind those of the first message: a message's gap, shared by its tokens.
std::vector<double> InterTokenGaps(const RequestRecord& request);
bool IsGood(const RequestRecord& request, const Goodput& goodput);

}  // namespace bulkhead
