// Raw results of one `bench serve`, and their files for the Python tool, which summarises them.
// Pure.
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
  std::string version;  // the client's
  std::string date;     // start of the run, UTC
  std::string client_host;
  double busiest_thread_share = 0;       // CPU time / wall time, maximum over runs
  std::optional<ClientCeiling> ceiling;  // absent: not measured
  std::vector<RunRecord> runs;
  std::optional<ServerFacts> server;  // absent: the null server
  std::vector<LoadSample> samples;    // of the server's load
  bool interrupted = false;           // by a signal, or because the server was gone
  int signal = 0;                     // signal that ended it; 0: none
};

// Everything except the requests: run.json.
std::string RunJson(const RawResult& result);
// One line per request: requests.jsonl.
std::string RequestsJsonLines(const std::vector<RunRecord>& runs);

}  // namespace bulkhead
