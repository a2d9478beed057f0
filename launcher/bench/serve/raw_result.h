// What one `bench serve` found out, before anything is summed up, and its files for the Python
// tool, which does that. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/bench/serve/client_ceiling.h"
#include "launcher/bench/serve/request_record.h"
#include "launcher/bench/serve/server_view.h"
#include "launcher/flags/serve_bench_options.h"

namespace bulkhead {

struct RawResult {
  ServeBenchOptions options;
  std::string version;  // of the client
  std::string date;     // of the begin, UTC
  std::string client_host;
  double busiest_thread_share = 0;       // CPU time over wall time, the worst of the runs
  std::optional<ClientCeiling> ceiling;  // absent: not measured
  std::vector<RunRecord> runs;
  std::optional<ServerFacts> server;  // absent: the null server
  std::vector<LoadSample> samples;    // of the server's load
  bool interrupted = false;           // by a signal, or because the server was gone
  int signal = 0;                     // that ended it; 0: none
};

// Everything but the requests: run.json.
std::string RunJson(const RawResult& result);
// One line per request: requests.jsonl.
std::string RequestsJsonLines(const std::vector<RunRecord>& runs);

}  // namespace bulkhead
