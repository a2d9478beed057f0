#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/bench/rank_figures.h"
#include "launcher/bench/serve/bench_result.h"
#include "launcher/bench/serve/chart.h"

namespace bulkhead {
namespace {

constexpr size_t kMostPoints = 400;
constexpr int kSlices = 60;
constexpr double kMsPerS = 1e3;
constexpr double kBytesPerMib = 1 << 20;

using Requests = std::vector<const RequestRecord*>;

Requests CompletedOf(const BenchResult& result) {
  Requests requests;
  for (const RunRecord& run : result.runs) {
    for (const RequestRecord& request : run.requests) {
      if (request.outcome == RequestOutcome::kCompleted) requests.push_back(&request);
    }
  }
  return requests;
}

// The share of values that are at most x.
Series Cumulative(const std::string& name, std::vector<double> values) {
  Series series;
  series.name = name;
  std::sort(values.begin(), values.end());
  const size_t stride = std::max<size_t>(1, values.size() / kMostPoints);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % stride != 0 && i + 1 != values.size()) continue;
    series.points.emplace_back(
        values[i], 100.0 * static_cast<double>(i + 1) / static_cast<double>(values.size()));
  }
  return series;
}

std::string LatencyCharts(const Requests& requests) {
  std::vector<double> ttft, ttft_sent, tpot, e2el, e2el_sent;
  Series over_time;
  over_time.connected = false;
  const size_t stride = std::max<size_t>(1, requests.size() / (5 * kMostPoints));
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestRecord& request = *requests[i];
    const double last = LastToken(request);
    if (const auto first = FirstToken(request)) {
      ttft.push_back(kMsPerS * (*first - request.scheduled_s));
      ttft_sent.push_back(kMsPerS * (*first - *request.sent_s));
      if (i % stride == 0) over_time.points.emplace_back(request.scheduled_s, ttft.back());
    }
    if (const auto per_token = TimePerOutputToken(request)) tpot.push_back(kMsPerS * *per_token);
    e2el.push_back(kMsPerS * (last - request.scheduled_s));
    e2el_sent.push_back(kMsPerS * (last - *request.sent_s));
  }
  return absl::StrCat(
      XyChart(
          "Time to first token", "ms", "% of requests",
          {Cumulative("from the scheduled arrival", ttft), Cumulative("from sending", ttft_sent)}),
      XyChart("Time per output token", "ms", "% of requests", {Cumulative("", tpot)}),
      XyChart(
          "End-to-end latency", "ms", "% of requests",
          {Cumulative("from the scheduled arrival", e2el), Cumulative("from sending", e2el_sent)}),
      XyChart("Time to first token over the run", "scheduled at, s", "ms", {over_time}));
}

std::string LoadCharts(const RunRecord& run) {
  const double slice_s = run.duration_s / kSlices;
  if (!(slice_s > 0)) return "";
  std::vector<double> tokens(kSlices, 0), in_flight(kSlices, 0);
  const auto slice_of = [&](double time_s) {
    return std::clamp(static_cast<int>(time_s / slice_s), 0, kSlices - 1);
  };
  for (const RequestRecord& request : run.requests) {
    for (const TokenArrival& arrival : request.arrivals) {
      tokens[slice_of(arrival.time_s)] += arrival.tokens / slice_s;
    }
    if (!request.sent_s.has_value()) continue;
    // The part of each slice that the request was in flight.
    for (int i = slice_of(*request.sent_s); i <= slice_of(request.end_s); ++i) {
      const double begin = std::max(*request.sent_s, i * slice_s);
      const double end = std::min(request.end_s, (i + 1) * slice_s);
      in_flight[i] += std::max(0.0, end - begin) / slice_s;
    }
  }
  Series tokens_series, flight_series;
  for (int i = 0; i < kSlices; ++i) {
    tokens_series.points.emplace_back((i + 0.5) * slice_s, tokens[i]);
    flight_series.points.emplace_back((i + 0.5) * slice_s, in_flight[i]);
  }
  return absl::StrCat(XyChart("Output tokens per second", "s", "tokens/s", {tokens_series}),
                      XyChart("Requests in flight", "s", "requests", {flight_series}));
}

std::string SplitChart(const TimeSplit& split) {
  if (split.count == 0) return "";
  const auto value = [](const std::optional<Estimate>& part) {
    return part.has_value() ? part->value : 0;
  };
  return StackedBars("Where the time went (means)", "ms",
                     {"client wait", "queue", "prefill", "decode", "network, gRPC, tokenising"},
                     {{"a request",
                       {split.send_delay.value, split.queue.value, split.prefill.value,
                        split.decode.value, split.rest.value}}}) +
         StackedBars("What prefill and decode spent (means)", "ms",
                     {"model and scheduling", "collectives", "sampling", "detokenising"},
                     {{"a request",
                       {split.computing.value, value(split.collective), value(split.sampling),
                        value(split.detokenise)}}});
}

std::string MemoryCharts(const BenchResult& result) {
  if (!result.server.has_value()) return "";
  const v1::RankTable& table = result.server->ranks;
  std::vector<std::string> names;
  for (const v1::RankRow& rank : table.ranks()) {
    for (const v1::Arena& arena : rank.arenas()) {
      if (std::find(names.begin(), names.end(), arena.term()) == names.end()) {
        names.push_back(arena.term());
      }
    }
  }
  std::vector<Bar> bars;
  for (const v1::RankRow& rank : table.ranks()) {
    Bar bar;
    bar.label =
        absl::StrCat("rank ", rank.rank(), rank.rank() == table.binding_rank() ? " (binds)" : "");
    bar.parts.resize(names.size(), 0);
    for (const v1::Arena& arena : rank.arenas()) {
      const size_t i = std::find(names.begin(), names.end(), arena.term()) - names.begin();
      bar.parts[i] += static_cast<double>(arena.bytes()) / kBytesPerMib;
    }
    bars.push_back(std::move(bar));
  }
  std::string html = StackedBars("Memory taken at start", "MiB", names, bars);
  Series used;
  for (const LoadSample& sample : result.samples) {
    used.points.emplace_back(sample.time_s, static_cast<double>(sample.load.num_kv_blocks_used()));
  }
  return html + XyChart("KV blocks in use", "s since the measurement began", "blocks", {used});
}

std::string Facts(const BenchResult& result) {
  std::vector<std::vector<std::string>> rows = {{"what", "value"}};
  rows.push_back({"date (UTC)", result.date});
  std::string flags;
  for (const std::string& arg : result.options.args) absl::StrAppend(&flags, " ", arg);
  rows.push_back({"command", "bulkhead bench serve" + flags});
  rows.push_back({"client", absl::StrCat(result.version, " on ", result.client_host)});
  if (result.server.has_value()) {
    const ServerFacts& facts = *result.server;
    rows.push_back({"server: version", facts.server.version()});
    rows.push_back({"ranks", absl::StrCat(facts.server.tensor_parallel_size())});
    rows.push_back({"model", absl::StrCat(facts.model.served_model_name(), " (",
                                          facts.model.architecture(), ", ", facts.model.dtype(),
                                          ", KV ", facts.server.kv_cache_dtype(), ")")});
    rows.push_back({"config.json, sha256", facts.model.config_sha256()});
    const std::map<std::string, std::string> sorted(facts.server.provenance().begin(),
                                                    facts.server.provenance().end());
    for (const auto& [key, value] : sorted) rows.push_back({"server: " + key, value});
  }
  return HtmlTable(rows);
}

std::string Ranks(const BenchResult& result) {
  if (!result.server.has_value()) return "";
  std::vector<std::vector<std::string>> rows = {
      {"rank", "host", "device", "cores", "NUMA nodes", "clock, us"}};
  for (const v1::RankRow& rank : result.server->ranks.ranks()) {
    const int i = static_cast<int>(rank.rank());
    const auto& clocks = result.server->server.clock_offsets();
    rows.push_back(
        {absl::StrCat(i), rank.host(), rank.device(), rank.cores(), rank.numa_nodes(),
         i < clocks.size() ? ClockText(clocks[i].offset_us(), clocks[i].error_us()) : "-"});
  }
  return HtmlTable(rows);
}

}  // namespace

std::string ReportPage(const BenchResult& result) {
  std::string html = PageBegin(absl::StrCat("bench serve: ", result.model_id()));
  for (const std::string& why : result.why_invalid) {
    absl::StrAppend(&html, "<p class=\"bad\">Invalid: ", EscapeHtml(why), "</p>\n");
  }
  const Requests requests = CompletedOf(result);
  absl::StrAppend(&html, "<div class=\"charts\">\n", LatencyCharts(requests));
  if (!result.runs.empty()) absl::StrAppend(&html, LoadCharts(result.runs.back()));
  absl::StrAppend(&html, SplitChart(result.summary.split), MemoryCharts(result), "</div>\n",
                  "<h2>Figures</h2>\n<pre>", EscapeHtml(ConsoleTable(result)), "</pre>\n",
                  "<h2>How it was measured</h2>\n", Facts(result), Ranks(result), kPageEnd);
  return html;
}

}  // namespace bulkhead
