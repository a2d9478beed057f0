// What a benchmark prints and writes: the table, result.json, requests.jsonl and the page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "launcher/bench/serve/bench_result.h"
#include "launcher/bench/serve/chart.h"
#include "launcher/bench/serve/definitions.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// 120 requests, one each 0.1 s, sent 10 ms late, of two messages: one token, then two.
BenchResult Sample() {
  BenchResult result;
  result.date = "20260102-030405";
  result.options.arrivals.request_rate = 10;
  result.options.args = {"--request-rate", "10"};
  result.options.summary.goodput.ttft_ms = 1000;
  result.options.metadata = {{"site", "quay"}};
  RunRecord run;
  for (int i = 0; i < 120; ++i) {
    RequestRecord request;
    request.index = i;
    request.scheduled_s = 0.1 * i;
    request.sent_s = 0.1 * i + 0.01;
    request.arrivals = {{0.1 * i + 0.11, 1}, {0.1 * i + 0.15, 2}};
    request.end_s = 0.1 * i + 0.16;
    request.outcome = RequestOutcome::kCompleted;
    request.prompt_tokens = 9;
    request.completion_tokens = 3;
    request.server = ServerTimes{0.01, 0.08, 0.04, 0, 0.03, 0.002, std::nullopt};
    run.requests.push_back(request);
  }
  run.duration_s = run.requests.back().end_s;
  result.runs.push_back(run);
  RequestRecord& failed = result.runs[0].requests[7];
  failed.outcome = RequestOutcome::kFailed;
  failed.code = "RESOURCE_EXHAUSTED";
  failed.reason = "QUEUE_FULL";
  failed.message = "the queue is \"full\"";
  result.summary = Summarize(result.runs, result.options.summary);
  ServerFacts facts;
  facts.model.set_served_model_name("<model>");
  facts.server.set_tensor_parallel_size(2);
  (*facts.server.mutable_provenance())["launcher"] = "mpirun";
  facts.server.add_clock_offsets();
  v1::ClockOffset& clock = *facts.server.add_clock_offsets();
  clock.set_offset_us(-12.5);
  clock.set_error_us(3);
  for (int rank = 0; rank < 2; ++rank) {
    v1::RankRow& row = *facts.ranks.add_ranks();
    row.set_rank(rank);
    row.set_host("host" + std::to_string(rank));
    v1::Arena& arena = *row.add_arenas();
    arena.set_term("kv");
    arena.set_bytes(3 << 20);
  }
  facts.ranks.set_binding_rank(1);
  facts.ranks.set_binding_term("kv");
  result.server = facts;
  v1::LoadInfo before, after;
  before.set_num_kv_blocks_used_peak(1);
  (*before.mutable_num_errors_by_reason())["QUEUE_FULL"] = 4;
  after.set_num_kv_blocks(64);
  after.set_num_kv_blocks_used_peak(40);
  after.set_num_preemptions_total(3);
  (*after.mutable_num_errors_by_reason())["QUEUE_FULL"] = 5;
  result.samples = {{0, before}, {12, after}};
  result.memory = MemoryUseOf(result.samples);
  return result;
}

TEST(BenchResult, WithoutACompletedRequestNoLatencyIsTold) {
  BenchResult result = Sample();
  for (RequestRecord& request : result.runs[0].requests) {
    request.outcome = RequestOutcome::kFailed;
  }
  result.summary = Summarize(result.runs, result.options.summary);
  const std::string table = ConsoleTable(result);
  const std::string from_send = table.substr(table.find("Counted from Sending"));
  const size_t row = from_send.find("Mean E2EL (ms):");
  EXPECT_THAT(from_send.substr(row, from_send.find('\n', row) - row), HasSubstr("none"));
  EXPECT_THAT(from_send.substr(0, row), HasSubstr("none"));
}

TEST(BenchResult, TheTableHasTheRowsThatUsersKnowInTheirOrder) {
  const std::string table = ConsoleTable(Sample());
  size_t at = 0;
  for (const char* row : {"============ Serving Benchmark Result ============",
                          "Successful requests:",
                          "Failed requests:",
                          "Request rate configured (RPS):",
                          "Benchmark duration (s):",
                          "Total input tokens:",
                          "Total generated tokens:",
                          "Request throughput (req/s):",
                          "Request goodput (req/s):",
                          "Output token throughput (tok/s):",
                          "Peak output token throughput (tok/s):",
                          "Peak concurrent requests:",
                          "Total token throughput (tok/s):",
                          "---------------Time to First Token----------------",
                          "Mean TTFT (ms):",
                          "Median TTFT (ms):",
                          "P99 TTFT (ms):",
                          "-----Time per Output Token (excl. 1st token)------",
                          "Mean TPOT (ms):",
                          "---------------Inter-token Latency----------------",
                          "Mean ITL (ms):",
                          "----------------End-to-end Latency----------------",
                          "Mean E2EL (ms):"}) {
    const size_t found = table.find(row, at);
    ASSERT_NE(found, std::string::npos) << row << " is missing behind\n" << table.substr(0, at);
    at = found;
  }
  EXPECT_THAT(table, HasSubstr("P99 TTFT (ms):                           n = 119, needs 1000\n"));
  EXPECT_THAT(table, HasSubstr("Mean TTFT (ms):                          110.00 "));
  EXPECT_THAT(table, HasSubstr("Rank 1 on host1:                         3.0 MiB taken"));
  EXPECT_THAT(table, HasSubstr("40 of 64\n"));
  EXPECT_THAT(table, HasSubstr("QUEUE_FULL 1\n"));
  EXPECT_THAT(table, Not(HasSubstr("INVALID")));
}

TEST(BenchResult, VllmsKeysHaveVllmsMeaning) {
  const json result = json::parse(ResultJson(Sample()));
  for (const char* key : {"date",
                          "endpoint_type",
                          "backend",
                          "label",
                          "model_id",
                          "tokenizer_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "mean_ttft_ms",
                          "median_ttft_ms",
                          "std_ttft_ms",
                          "p99_ttft_ms",
                          "mean_tpot_ms",
                          "mean_itl_ms",
                          "mean_e2el_ms"}) {
    EXPECT_TRUE(result.contains(key)) << key;
  }
  EXPECT_EQ(result["completed"], 119);
  EXPECT_EQ(result["failed"], 1);
  EXPECT_EQ(result["total_output_tokens"], 3 * 119);
  EXPECT_NEAR(result["mean_ttft_ms"], 100, 1e-6);  // from sending
  EXPECT_NEAR(result["mean_itl_ms"], 40, 1e-6);    // between messages
  EXPECT_NEAR(result["mean_tpot_ms"], 20, 1e-6);
  EXPECT_NEAR(result["mean_e2el_ms"], 140, 1e-6);
  EXPECT_TRUE(result["p99_ttft_ms"].is_null());
  EXPECT_TRUE(result["p90_ttft_ms"].is_number());
  EXPECT_EQ(result["request_rate"], 10);
  EXPECT_EQ(result["site"], "quay");
  EXPECT_FALSE(result.contains("ttfts"));
}

TEST(BenchResult, OurKeysCountFromTheScheduledArrivalAndByToken) {
  const BenchResult result = Sample();
  const json ours = json::parse(ResultJson(result))["x_bulkhead"];
  EXPECT_EQ(ours["valid"], true);
  EXPECT_NEAR(ours["latencies"]["ttft_ms"]["mean"]["value"], 110, 1e-6);
  EXPECT_NEAR(ours["latencies"]["itl_ms"]["mean"]["value"], 20, 1e-6);
  EXPECT_EQ(ours["latencies"]["itl_ms"]["count"], 2 * 119);
  EXPECT_FALSE(ours["latencies"]["ttft_ms"].contains("p99"));
  EXPECT_EQ(ours["memory"]["kv_blocks_used_peak"], 40);
  EXPECT_EQ(ours["memory"]["preemptions"], 3);
  EXPECT_EQ(ours["memory"]["refusals"], json({{"QUEUE_FULL", 1}}));
  EXPECT_EQ(ours["memory"]["ranks"][1]["arenas"]["kv"], 3 << 20);
  EXPECT_EQ(ours["server"]["provenance"]["launcher"], "mpirun");
  EXPECT_EQ(ours["server"]["clock_offsets_us"][1]["offset"], -12.5);
  EXPECT_EQ(ours["server"]["clock_offsets_us"][1]["error"], 3);
  EXPECT_THAT(ConsoleTable(result), HasSubstr("-12.5 +- 3.0"));
  EXPECT_THAT(ReportPage(result), HasSubstr("-12.5 +- 3.0"));
  EXPECT_EQ(ours["failures_by_code"], json({{"RESOURCE_EXHAUSTED", 1}}));
  EXPECT_NEAR(ours["time_split_ms"]["prefill"]["value"], 80, 1e-6);
  const json& parts = ours["time_split_ms"]["of_prefill_and_decode"];
  EXPECT_NEAR(parts["collective"]["value"], 30, 1e-6);
  EXPECT_NEAR(parts["sampling"]["value"], 2, 1e-6);
  EXPECT_TRUE(parts["detokenise"].is_null());
  EXPECT_NEAR(parts["computing"]["value"], 88, 1e-6);
  EXPECT_THAT(ConsoleTable(Sample()), HasSubstr("Collectives (ms):                        30.00"));
  EXPECT_THAT(ConsoleTable(Sample()), Not(HasSubstr("Detokenising")));
  EXPECT_EQ(ours["client"]["args"], json({"--request-rate", "10"}));
  EXPECT_GT(ours["definitions"].size(), 5);
}

TEST(BenchResult, DetailsAreOneEntryPerRequest) {
  BenchResult sample = Sample();
  sample.options.save_detailed = true;
  const json result = json::parse(ResultJson(sample));
  for (const char* key : {"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times",
                          "queue_times", "errors"}) {
    EXPECT_EQ(result[key].size(), 120) << key;
  }
  EXPECT_NEAR(result["ttfts"][3], 0.1, 1e-9);
  EXPECT_NEAR(result["queue_times"][3], 0.01, 1e-9);
  EXPECT_EQ(result["output_lens"][7], 0);
  EXPECT_EQ(result["errors"][7], "the queue is \"full\"");
}

TEST(BenchResult, EveryRequestIsALine) {
  std::istringstream lines(RequestsJsonLines(Sample().runs));
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    const json request = json::parse(line);
    EXPECT_EQ(request["index"], count);
    EXPECT_EQ(request["outcome"], count == 7 ? "failed" : "completed");
    EXPECT_EQ(request.contains("error"), count == 7);
    EXPECT_EQ(request["arrivals"].size(), 2);
    EXPECT_EQ(request["arrivals"][1][1], 2);
    ++count;
  }
  EXPECT_EQ(count, 120);
}

TEST(BenchResult, ThePageIsCompleteInItself) {
  BenchResult sample = Sample();
  sample.why_invalid = {"the client was slow & old"};
  const std::string page = ReportPage(sample);
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_THAT(page, HasSubstr("slow &amp; old"));
  EXPECT_THAT(page, HasSubstr("&lt;model&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<model>")));
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page, Not(HasSubstr("inf\"")));
}

TEST(BenchResult, ResultsOfNothingCanBeWritten) {
  BenchResult result;
  result.runs.emplace_back();
  result.summary = Summarize(result.runs, {});
  EXPECT_THAT(ConsoleTable(result), HasSubstr("Mean TTFT (ms):                          none"));
  EXPECT_EQ(json::parse(ResultJson(result))["completed"], 0);
  EXPECT_THAT(ReportPage(result), Not(HasSubstr("nan")));
}

TEST(MemoryUse, APeakThatTheServerDidNotExceedIsWhatWasSeen) {
  v1::LoadInfo before, during, after;
  before.set_num_kv_blocks_used_peak(50);
  during.set_num_kv_blocks_used_peak(50);
  during.set_num_kv_blocks_used(12);
  after.set_num_kv_blocks_used_peak(50);
  const auto use = MemoryUseOf({{0, before}, {1, during}, {2, after}});
  ASSERT_TRUE(use.has_value());
  EXPECT_EQ(use->kv_blocks_used_peak, 12);
  EXPECT_FALSE(use->peak_is_exact);
  EXPECT_FALSE(MemoryUseOf({{0, before}}).has_value());
}

TEST(MemoryUse, GpusAreToldWithWhatTheyHadFreeAtTheLeast) {
  BenchResult result = Sample();
  EXPECT_THAT(ConsoleTable(result), Not(HasSubstr("GPU of rank")));
  v1::LoadInfo after = result.samples.back().load;
  for (const uint64_t least : {5 << 20, 4 << 20}) {
    v1::DeviceMemory& device = *after.add_device_memory();
    device.set_free_bytes(5 << 20);
    device.set_free_bytes_at_ready(5 << 20);
    device.set_free_bytes_least(least);
  }
  result.samples.back().load = after;
  result.memory = MemoryUseOf(result.samples);
  const std::string table = ConsoleTable(result);
  EXPECT_THAT(table, HasSubstr("GPU of rank 0, free at the least:        5.0 MiB, as at READY\n"));
  EXPECT_THAT(table, HasSubstr("4.0 MiB, 1.0 MiB less than at READY\n"));
  const json devices = json::parse(ResultJson(result))["x_bulkhead"]["memory"]["devices"];
  EXPECT_EQ(devices[0]["free_bytes_least"], 5 << 20);
  EXPECT_EQ(devices[1]["free_bytes_least"], 4 << 20);
}

TEST(WhyInvalidTest, AResultThatTheClientLimitedIsSaidToBe) {
  BenchSummary summary;
  summary.latencies.ttft.median.value = 100;
  summary.throughput.duration_s = 10;
  summary.throughput.requests_per_s.value = 10;
  summary.peak_tokens_per_s = 100;
  ClientFacts client;
  client.ceiling = ClientCeiling{1000, 10000};
  EXPECT_TRUE(WhyInvalid(summary, client).empty());
  client.lag.p99_ms = 5.1;  // 5 % of 100 are 5
  EXPECT_THAT(WhyInvalid(summary, client), ElementsAre(HasSubstr("5.10 ms later")));
  client.lag.p99_ms = 4.9;
  client.busiest_thread_share = 0.9;
  EXPECT_THAT(WhyInvalid(summary, client), ElementsAre(HasSubstr("busy 90 %")));
  client.busiest_thread_share = 0.1;
  summary.peak_tokens_per_s = 6000;
  EXPECT_THAT(WhyInvalid(summary, client), ElementsAre(HasSubstr("60 % of what this client")));
}

TEST(DefinitionsTest, EveryMetricIsExplainedAndMapped) {
  const std::string text = DefinitionsText();
  for (const Definition& one : Definitions()) {
    EXPECT_THAT(text, HasSubstr(one.name + "\n  " + one.formula));
  }
  for (const char* tool : {"vLLM", "guidellm", "AIPerf", "MLPerf"})
    EXPECT_THAT(text, HasSubstr(tool));
}

}  // namespace
}  // namespace bulkhead
