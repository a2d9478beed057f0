#include "launcher/bench/serve/summary.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bulkhead {
namespace {

constexpr double kMsPerS = 1e3;
constexpr int kSlices = 20;  // of a run, for the interval of its throughput
constexpr int kLeastSteadyRequests = 20;
constexpr double kLeastSteadyShare = 0.25;  // of the requests that completed

using Requests = std::vector<const RequestRecord*>;

bool Completed(const RequestRecord& request) {
  return request.outcome == RequestOutcome::kCompleted && request.sent_s.has_value();
}

Latencies LatenciesOf(const Requests& requests, const std::vector<double>& percents) {
  std::vector<Observation> ttft, e2el, sent_ttft, sent_e2el, tpot, itl, chunks, delay;
  for (int i = 0; i < static_cast<int>(requests.size()); ++i) {
    const RequestRecord& request = *requests[i];
    const double sent = *request.sent_s;
    if (const std::optional<double> first = FirstToken(request)) {
      ttft.push_back({kMsPerS * (*first - request.scheduled_s), i});
      sent_ttft.push_back({kMsPerS * (*first - sent), i});
    }
    e2el.push_back({kMsPerS * (LastToken(request) - request.scheduled_s), i});
    sent_e2el.push_back({kMsPerS * (LastToken(request) - sent), i});
    if (const std::optional<double> per_token = TimePerOutputToken(request)) {
      tpot.push_back({kMsPerS * *per_token, i});
    }
    for (const double gap : InterTokenGaps(request)) itl.push_back({kMsPerS * gap, i});
    for (size_t k = 1; k < request.arrivals.size(); ++k) {
      const double gap = request.arrivals[k].time_s - request.arrivals[k - 1].time_s;
      chunks.push_back({kMsPerS * gap, i});
    }
    delay.push_back({kMsPerS * (sent - request.scheduled_s), i});
  }
  Latencies result;
  result.ttft = Describe(std::move(ttft), percents);
  result.e2el = Describe(std::move(e2el), percents);
  result.ttft_from_send = Describe(std::move(sent_ttft), percents);
  result.e2el_from_send = Describe(std::move(sent_e2el), percents);
  result.tpot = Describe(std::move(tpot), percents);
  result.itl = Describe(std::move(itl), percents);
  result.chunk_gap = Describe(std::move(chunks), percents);
  result.send_delay = Describe(std::move(delay), percents);
  return result;
}

TimeSplit SplitOf(const Requests& requests) {
  std::vector<double> delay, queue, prefill, decode, rest;
  std::vector<double> collective, sampling, detokenise, computing;
  for (const RequestRecord* request : requests) {
    if (!request->server.has_value()) continue;
    const ServerTimes& server = *request->server;
    delay.push_back(kMsPerS * (*request->sent_s - request->scheduled_s));
    queue.push_back(kMsPerS * server.queue_s);
    prefill.push_back(kMsPerS * server.prefill_s);
    decode.push_back(kMsPerS * server.decode_s);
    rest.push_back(kMsPerS * (request->end_s - *request->sent_s - server.total_s()));
    computing.push_back(prefill.back() + decode.back());
    for (const auto& [part, values] :
         {std::pair(server.collective_s, &collective), std::pair(server.sampling_s, &sampling),
          std::pair(server.detokenise_s, &detokenise)}) {
      if (!part.has_value()) continue;
      values->push_back(kMsPerS * *part);
      computing.back() -= values->back();
    }
  }
  const auto known = [](const std::vector<double>& values) {
    return values.empty() ? std::nullopt : std::optional<Estimate>(MeanOf(values));
  };
  TimeSplit split;
  split.count = static_cast<int64_t>(queue.size());
  split.send_delay = MeanOf(delay);
  split.queue = MeanOf(queue);
  split.prefill = MeanOf(prefill);
  split.decode = MeanOf(decode);
  split.rest = MeanOf(rest);
  split.collective = known(collective);
  split.sampling = known(sampling);
  split.detokenise = known(detokenise);
  split.computing = MeanOf(computing);
  return split;
}

// Amounts laid into equal slices of windows, as rates: what the interval of a throughput is drawn
// from.
class SliceRates {
 public:
  explicit SliceRates(const std::vector<Window>& windows) : windows_(windows) {
    for (const Window& window : windows) total_s_ += window.end_s - window.begin_s;
    slices_.resize(windows.size() * kSlices, 0);
  }

  void Add(int run, double time_s, double amount) {
    const Window& window = windows_[run];
    if (time_s < window.begin_s || time_s > window.end_s) return;
    const double share = (time_s - window.begin_s) / (window.end_s - window.begin_s);
    const int slice = std::min(kSlices - 1, static_cast<int>(share * kSlices));
    slices_[run * kSlices + slice] += amount;
    amount_ += amount;
  }

  Estimate PerSecond() const {
    if (!(total_s_ > 0)) return {};
    std::vector<double> rates;
    for (size_t i = 0; i < slices_.size(); ++i) {
      const Window& window = windows_[i / kSlices];
      const double slice_s = (window.end_s - window.begin_s) / kSlices;
      if (slice_s > 0) rates.push_back(slices_[i] / slice_s);
    }
    const Estimate mean = MeanOf(rates);
    return {amount_ / total_s_, mean.low, mean.high};
  }

 private:
  const std::vector<Window>& windows_;
  double total_s_ = 0;
  double amount_ = 0;
  std::vector<double> slices_;
};

// Tokens count when they come, prompts with their first token, requests when they end.
Throughput ThroughputOf(const Requests& requests, const std::vector<Window>& windows,
                        const Goodput& goodput) {
  SliceRates ended(windows), generated(windows), all_tokens(windows), good(windows);
  for (const RequestRecord* request : requests) {
    ended.Add(request->run, LastToken(*request), 1);
    if (IsGood(*request, goodput)) good.Add(request->run, LastToken(*request), 1);
    all_tokens.Add(request->run, FirstToken(*request).value_or(LastToken(*request)),
                   request->prompt_tokens);
    for (const TokenArrival& arrival : request->arrivals) {
      generated.Add(request->run, arrival.time_s, arrival.tokens);
      all_tokens.Add(request->run, arrival.time_s, arrival.tokens);
    }
  }
  Throughput result;
  for (const Window& window : windows) result.duration_s += window.end_s - window.begin_s;
  result.requests_per_s = ended.PerSecond();
  result.output_tokens_per_s = generated.PerSecond();
  result.total_tokens_per_s = all_tokens.PerSecond();
  if (goodput.any()) result.good_requests_per_s = good.PerSecond().value;
  return result;
}

void FindPeaks(const Requests& requests, BenchSummary* summary) {
  if (requests.empty()) return;
  double begin = *requests[0]->sent_s;
  for (const RequestRecord* request : requests) begin = std::min(begin, *request->sent_s);
  std::map<int64_t, int> tokens_of_second;
  std::vector<std::pair<double, int>> changes;  // an end counts before a begin of the same time
  for (const RequestRecord* request : requests) {
    for (const TokenArrival& arrival : request->arrivals) {
      tokens_of_second[static_cast<int64_t>(arrival.time_s - begin)] += arrival.tokens;
    }
    changes.emplace_back(*request->sent_s, 1);
    changes.emplace_back(LastToken(*request), -1);
  }
  for (const auto& [second, tokens] : tokens_of_second) {
    summary->peak_tokens_per_s = std::max<double>(summary->peak_tokens_per_s, tokens);
  }
  std::sort(changes.begin(), changes.end());
  int running = 0;
  for (const auto& [time, change] : changes) {
    running += change;
    summary->peak_concurrency = std::max(summary->peak_concurrency, running);
  }
}

double MeanValue(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

RunFigures FiguresOf(const RunRecord& run) {
  RunFigures figures;
  figures.duration_s = run.duration_s;
  std::vector<double> ttft, tpot, e2el;
  int64_t tokens = 0;
  for (const RequestRecord& request : run.requests) {
    if (request.outcome == RequestOutcome::kFailed) ++figures.failed;
    if (!Completed(request)) continue;
    ++figures.completed;
    tokens += request.received_tokens();
    if (const auto first = FirstToken(request)) ttft.push_back(*first - request.scheduled_s);
    if (const auto per_token = TimePerOutputToken(request)) tpot.push_back(*per_token);
    e2el.push_back(LastToken(request) - request.scheduled_s);
  }
  if (run.duration_s > 0) {
    figures.request_throughput = figures.completed / run.duration_s;
    figures.output_throughput = static_cast<double>(tokens) / run.duration_s;
  }
  figures.mean_ttft_ms = kMsPerS * MeanValue(ttft);
  figures.mean_tpot_ms = kMsPerS * MeanValue(tpot);
  figures.mean_e2el_ms = kMsPerS * MeanValue(e2el);
  return figures;
}

// From the first end, when the server has filled up, to the last arrival; empty when there is none.
Window SteadyWindow(const RunRecord& run) {
  std::optional<double> first_end;
  double last_sent = 0;
  for (const RequestRecord& request : run.requests) {
    if (request.sent_s.has_value()) last_sent = std::max(last_sent, *request.sent_s);
    if (!Completed(request)) continue;
    first_end = std::min(first_end.value_or(request.end_s), request.end_s);
  }
  if (!first_end.has_value() || *first_end >= last_sent) return {0, 0};
  return {*first_end, last_sent};
}

void FindSteady(const std::vector<RunRecord>& runs, const Requests& completed,
                const SummaryOptions& options, BenchSummary* summary) {
  BenchSummary::Steady steady;
  for (const RunRecord& run : runs) steady.windows.push_back(SteadyWindow(run));
  Requests inside;
  for (const RequestRecord* request : completed) {
    const Window& window = steady.windows[request->run];
    if (request->scheduled_s >= window.begin_s && request->scheduled_s < window.end_s) {
      inside.push_back(request);
    }
  }
  steady.requests = static_cast<int>(inside.size());
  if (steady.requests < kLeastSteadyRequests ||
      steady.requests < kLeastSteadyShare * static_cast<double>(completed.size())) {
    return;
  }
  // Tokens of requests that began earlier came inside the window, too.
  steady.throughput = ThroughputOf(completed, steady.windows, options.goodput);
  steady.latencies = LatenciesOf(inside, options.percents);
  summary->steady = std::move(steady);
}

}  // namespace

std::optional<double> FirstToken(const RequestRecord& request) {
  if (request.arrivals.empty()) return std::nullopt;
  return request.arrivals.front().time_s;
}

double LastToken(const RequestRecord& request) {
  return request.arrivals.empty() ? request.end_s : request.arrivals.back().time_s;
}

std::optional<double> TimePerOutputToken(const RequestRecord& request) {
  const int tokens = request.received_tokens();
  if (tokens < 2) return std::nullopt;
  return (LastToken(request) - *FirstToken(request)) / (tokens - 1);
}

std::vector<double> InterTokenGaps(const RequestRecord& request) {
  std::vector<double> gaps;
  for (size_t i = 1; i < request.arrivals.size(); ++i) {
    const TokenArrival& arrival = request.arrivals[i];
    const double gap = (arrival.time_s - request.arrivals[i - 1].time_s) / arrival.tokens;
    gaps.insert(gaps.end(), arrival.tokens, gap);
  }
  return gaps;
}

bool IsGood(const RequestRecord& request, const Goodput& goodput) {
  const auto within = [](std::optional<double> limit_ms, double seconds) {
    return !limit_ms.has_value() || kMsPerS * seconds <= *limit_ms;
  };
  const double first = FirstToken(request).value_or(request.end_s);
  return within(goodput.ttft_ms, first - request.scheduled_s) &&
         within(goodput.tpot_ms, TimePerOutputToken(request).value_or(0)) &&
         within(goodput.e2el_ms, LastToken(request) - request.scheduled_s);
}

BenchSummary Summarize(const std::vector<RunRecord>& runs, const SummaryOptions& options) {
  BenchSummary summary;
  Requests completed;
  std::vector<Window> whole;
  for (const RunRecord& run : runs) {
    Requests of_run;
    for (const RequestRecord& request : run.requests) {
      if (Completed(request)) {
        of_run.push_back(&request);
      } else if (request.outcome == RequestOutcome::kFailed) {
        ++summary.failed;
        ++summary.failures_by_code[request.code];
        if (!request.reason.empty()) ++summary.failures_by_reason[request.reason];
      } else {
        ++summary.unfinished;
      }
    }
    FindPeaks(of_run, &summary);
    completed.insert(completed.end(), of_run.begin(), of_run.end());
    whole.push_back({0, run.duration_s});
    summary.runs.push_back(FiguresOf(run));
  }
  summary.completed = static_cast<int>(completed.size());
  for (const RequestRecord* request : completed) {
    summary.input_tokens += request->prompt_tokens;
    summary.output_tokens += request->received_tokens();
    summary.cached_prompt_tokens += request->cached_prompt_tokens;
    if (request->server.has_value()) summary.preemptions += request->server->preemptions;
    if (options.goodput.any() && IsGood(*request, options.goodput)) ++summary.good;
  }
  summary.throughput = ThroughputOf(completed, whole, options.goodput);
  summary.latencies = LatenciesOf(completed, options.percents);
  summary.split = SplitOf(completed);
  FindSteady(runs, completed, options, &summary);
  return summary;
}

}  // namespace bulkhead
