// Everything that one `bench serve` found out, and its texts: the console's table, result.json,
// requests.jsonl and the page. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/bench/serve/client_ceiling.h"
#include "launcher/bench/serve/request_record.h"
#include "launcher/bench/serve/server_view.h"
#include "launcher/bench/serve/summary.h"
#include "launcher/flags/serve_bench_options.h"

namespace bulkhead {

struct BenchResult {
  ServeBenchOptions options;
  std::string version;  // of the client
  std::string date;     // of the begin, UTC
  std::string client_host;
  std::vector<RunRecord> runs;
  BenchSummary summary;
  ClientFacts client;
  std::optional<ServerFacts> server;  // absent: the null server
  std::vector<LoadSample> samples;    // of the server's load
  std::optional<MemoryUse> memory;
  bool interrupted = false;              // by a signal, or because the server was gone
  std::vector<std::string> why_invalid;  // empty: valid

  std::string model_id() const {
    return server.has_value() ? server->model.served_model_name() : "null";
  }
};

// The rows that vLLM's table has, in its order, then ours.
std::string ConsoleTable(const BenchResult& result);
// vLLM's keys with vLLM's definitions, and ours below "x_bulkhead".
std::string ResultJson(const BenchResult& result);
// One line per request.
std::string RequestsJsonLines(const std::vector<RunRecord>& runs);
// One page with charts, complete in itself.
std::string ReportPage(const BenchResult& result);

// "99" or "99.9".
std::string PercentText(double percent);
// "random", "prefix_repetition" ...
std::string DatasetText(DatasetName name);

}  // namespace bulkhead
