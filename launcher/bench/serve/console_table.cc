#include <algorithm>
#include <concepts>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "launcher/bench/rank_figures.h"
#include "launcher/bench/serve/bench_result.h"

namespace bulkhead {
namespace {

constexpr size_t kWidth = 50;

class Table {
 public:
  void Title(const std::string& title, char fill) {
    const size_t left = (kWidth - std::min(kWidth, title.size())) / 2;
    const size_t right = kWidth - std::min(kWidth, left + title.size());
    absl::StrAppend(&text_, std::string(left, fill), title, std::string(right, fill), "\n");
  }
  template <std::integral Integer>
  void Row(const std::string& name, Integer value) {
    Row(name, absl::StrCat(value));
  }
  void Row(const std::string& name, double value) { Row(name, absl::StrFormat("%.2f", value)); }
  void Row(const std::string& name, const Estimate& estimate) {
    Row(name,
        absl::StrFormat("%-10.2f [%.2f - %.2f]", estimate.value, estimate.low, estimate.high));
  }
  void Row(const std::string& name, const std::string& value) {
    absl::StrAppendFormat(&text_, "%-40s %s\n", name, value);
  }
  void Line(const std::string& line) { absl::StrAppend(&text_, line, "\n"); }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

void AddLatency(const std::string& title, const std::string& name, const Distribution& values,
                Table* table) {
  table->Title(title, '-');
  if (values.count == 0) {
    table->Row(absl::StrCat("Mean ", name, " (ms):"), "none");
    return;
  }
  table->Row(absl::StrCat("Mean ", name, " (ms):"), values.mean);
  table->Row(absl::StrCat("Median ", name, " (ms):"), values.median);
  for (const Percentile& one : values.percentiles) {
    const std::string row = absl::StrCat("P", PercentText(one.percent), " ", name, " (ms):");
    if (one.estimate.has_value()) {
      table->Row(row, *one.estimate);
    } else {
      table->Row(row, absl::StrCat("n = ", values.count, ", needs ", LeastCount(one.percent)));
    }
  }
}

void AddHead(const BenchResult& result, Table* table) {
  const BenchSummary& summary = result.summary;
  const ServeBenchOptions& options = result.options;
  table->Row("Successful requests:", summary.completed);
  table->Row("Failed requests:", summary.failed);
  if (options.max_concurrency.has_value()) {
    table->Row("Maximum request concurrency:", *options.max_concurrency);
  }
  if (options.arrivals.ramp_up == RampUp::kNone && options.arrivals.open_loop()) {
    table->Row("Request rate configured (RPS):", options.arrivals.request_rate);
  }
  table->Row("Benchmark duration (s):", summary.throughput.duration_s);
  table->Row("Total input tokens:", summary.input_tokens);
  table->Row("Total generated tokens:", summary.output_tokens);
  table->Row("Request throughput (req/s):", summary.throughput.requests_per_s);
  if (summary.throughput.good_requests_per_s.has_value()) {
    table->Row("Request goodput (req/s):", *summary.throughput.good_requests_per_s);
  }
  table->Row("Output token throughput (tok/s):", summary.throughput.output_tokens_per_s);
  table->Row("Peak output token throughput (tok/s):", summary.peak_tokens_per_s);
  table->Row("Peak concurrent requests:", static_cast<double>(summary.peak_concurrency));
  table->Row("Total token throughput (tok/s):", summary.throughput.total_tokens_per_s);
}

void AddSplit(const BenchSummary& summary, Table* table) {
  const Latencies& latencies = summary.latencies;
  table->Title("Counted from Sending", '-');
  const auto mean = [table](const std::string& name, const Distribution& values) {
    values.count == 0 ? table->Row(name, "none") : table->Row(name, values.mean);
  };
  mean("Mean TTFT (ms):", latencies.ttft_from_send);
  mean("Mean E2EL (ms):", latencies.e2el_from_send);
  if (summary.split.count == 0) return;
  table->Title("Where the Time Went (means)", '-');
  table->Row("Waiting in the client (ms):", summary.split.send_delay.value);
  table->Row("Server: queue (ms):", summary.split.queue.value);
  table->Row("Server: prefill (ms):", summary.split.prefill.value);
  table->Row("Server: decode (ms):", summary.split.decode.value);
  table->Row("Network, gRPC, tokenising (ms):", summary.split.rest.value);
  table->Title("Of Prefill and Decode (means)", '-');
  table->Row("Model and scheduling (ms):", summary.split.computing.value);
  for (const auto& [name, part] : {std::pair("Collectives (ms):", summary.split.collective),
                                   std::pair("Sampling (ms):", summary.split.sampling),
                                   std::pair("Detokenising (ms):", summary.split.detokenise)}) {
    if (part.has_value()) table->Row(name, part->value);
  }
}

void AddSteady(const BenchSummary& summary, Table* table) {
  if (!summary.steady.has_value()) return;
  const BenchSummary::Steady& steady = *summary.steady;
  table->Title("Steady Window", '-');
  table->Row("Requests that were due in it:", steady.requests);
  table->Row("Duration (s):", steady.throughput.duration_s);
  table->Row("Output token throughput (tok/s):", steady.throughput.output_tokens_per_s);
  table->Row("Mean TTFT (ms):", steady.latencies.ttft.mean);
  if (steady.latencies.tpot.count > 0) table->Row("Mean TPOT (ms):", steady.latencies.tpot.mean);
  table->Row("Mean E2EL (ms):", steady.latencies.e2el.mean);
}

void AddMemory(const BenchResult& result, Table* table) {
  if (!result.server.has_value()) return;
  table->Title("Memory", '-');
  for (const v1::RankRow& rank : result.server->ranks.ranks()) {
    uint64_t taken = 0;
    for (const v1::Arena& arena : rank.arenas()) taken += arena.bytes();
    const bool binds = rank.rank() == result.server->ranks.binding_rank();
    table->Row(
        absl::StrCat("Rank ", rank.rank(), rank.host().empty() ? "" : " on ", rank.host(), ":"),
        absl::StrCat(
            FormatBytes(static_cast<int64_t>(taken)), " taken, ",
            FormatBytes(static_cast<int64_t>(rank.free_bytes())), " left",
            binds ? absl::StrCat(" (binds: ", result.server->ranks.binding_term(), ")") : ""));
  }
  if (!result.memory.has_value()) return;
  const MemoryUse& memory = *result.memory;
  table->Row("KV blocks used at the most:",
             absl::StrFormat("%s%d of %d", memory.peak_is_exact ? "" : "at least ",
                             memory.kv_blocks_used_peak, memory.kv_blocks));
  table->Row("Preemptions:", memory.preemptions);
  table->Row("Refusals:", memory.refusals.empty()
                              ? "none"
                              : absl::StrJoin(memory.refusals, ", ", absl::PairFormatter(" ")));
  table->Row("Device allocations after READY:", memory.device_allocations_after_ready);
  for (size_t rank = 0; rank < memory.devices.size(); ++rank) {
    const v1::DeviceMemory& device = memory.devices[rank];
    const auto lost =
        static_cast<int64_t>(device.free_bytes_at_ready() - device.free_bytes_least());
    table->Row(
        absl::StrCat("GPU of rank ", rank, ", free at the least:"),
        absl::StrCat(FormatBytes(static_cast<int64_t>(device.free_bytes_least())),
                     lost == 0 ? ", as at READY"
                               : absl::StrCat(", ", FormatBytes(lost), " less than at READY")));
  }
}

// Where the clocks of a group of several hosts may be apart.
void AddClocks(const BenchResult& result, Table* table) {
  if (!result.server.has_value()) return;
  const auto& clocks = result.server->server.clock_offsets();
  if (clocks.size() < 2) return;
  table->Title("Clocks against Rank 0's", '-');
  for (int rank = 1; rank < clocks.size(); ++rank) {
    table->Row(absl::StrCat("Rank ", rank, " (us):"),
               ClockText(clocks[rank].offset_us(), clocks[rank].error_us()));
  }
}

void AddClient(const BenchResult& result, Table* table) {
  const ClientFacts& client = result.client;
  table->Title("Client", '-');
  table->Row("Sent late, P99 (ms):", client.lag.p99_ms);
  table->Row("Busiest thread (%):", 100 * client.busiest_thread_share);
  if (client.ceiling.has_value()) {
    table->Row("Ceiling of the client:",
               absl::StrFormat("%.0f requests/s of 1 token, %.0f tokens/s",
                               client.ceiling->requests_per_s, client.ceiling->tokens_per_s));
  }
}

void AddEnd(const BenchResult& result, Table* table) {
  const BenchSummary& summary = result.summary;
  if (result.runs.size() > 1) {
    table->Title("Runs", '-');
    for (size_t i = 0; i < summary.runs.size(); ++i) {
      const RunFigures& run = summary.runs[i];
      table->Row(absl::StrCat("Run ", i + 1, ":"),
                 absl::StrFormat("%.2f tok/s, mean TTFT %.2f ms, TPOT %.2f ms, E2EL %.2f ms",
                                 run.output_throughput, run.mean_ttft_ms, run.mean_tpot_ms,
                                 run.mean_e2el_ms));
    }
  }
  if (summary.failed > 0) {
    table->Title("Failures", '-');
    for (const auto& [code, count] : summary.failures_by_code) table->Row(code + ":", count);
    for (const auto& [reason, count] : summary.failures_by_reason) {
      table->Row(absl::StrCat("  reason ", reason, ":"), count);
    }
  }
}

}  // namespace

std::string PercentText(double percent) { return absl::StrCat(percent); }

std::string DatasetText(DatasetName name) {
  switch (name) {
    case DatasetName::kRandom:
      return "random";
    case DatasetName::kPrefixRepetition:
      return "prefix_repetition";
    case DatasetName::kText:
      return "text";
    case DatasetName::kCustom:
      return "custom";
    case DatasetName::kTrace:
      return "trace";
  }
  return "";
}

std::string ConsoleTable(const BenchResult& result) {
  const BenchSummary& summary = result.summary;
  const Latencies& latencies = summary.latencies;
  Table table;
  table.Title(" Serving Benchmark Result ", '=');
  AddHead(result, &table);
  AddLatency("Time to First Token", "TTFT", latencies.ttft, &table);
  AddLatency("Time per Output Token (excl. 1st token)", "TPOT", latencies.tpot, &table);
  AddLatency("Inter-token Latency", "ITL", latencies.itl, &table);
  AddLatency("End-to-end Latency", "E2EL", latencies.e2el, &table);
  AddSplit(summary, &table);
  AddSteady(summary, &table);
  AddMemory(result, &table);
  AddClocks(result, &table);
  AddClient(result, &table);
  AddEnd(result, &table);
  table.Title("", '=');
  table.Line(
      "[a - b]: 95 % interval. Latencies count from the scheduled arrival; 'bulkhead bench "
      "definitions' says how.");
  if (summary.unfinished > 0) {
    table.Line(absl::StrCat("Stopped early: ", summary.unfinished, " requests had no end."));
  }
  for (const std::string& why : result.why_invalid) table.Line("INVALID: " + why);
  return std::move(table).text();
}

}  // namespace bulkhead
