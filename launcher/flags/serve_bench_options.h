// The options of the benchmark commands that are clients of a server.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/bench/serve/arrivals.h"
#include "launcher/bench/serve/summary.h"

namespace bulkhead {

enum class DatasetName { kRandom, kPrefixRepetition, kText, kCustom, kTrace };

struct DatasetOptions {
  DatasetName name = DatasetName::kRandom;
  std::optional<std::string> path;  // of kCustom and kTrace
  std::optional<int> num_prompts;   // absent: 1000, or every line of the file
  uint64_t seed = 0;
  int input_len = 1024;
  int output_len = 128;
  double range_ratio = 0;  // lengths are drawn from len * (1 - ratio) to len * (1 + ratio)
  int prefix_len = 0;      // common prefix, in tokens, of all random prompts, or those of a group
  int num_prefixes = 10;   // of kPrefixRepetition
  std::optional<bool> ignore_eos;  // absent: on, except for kCustom
  float temperature = 0;
  double trace_speed = 1;  // divides the trace's times
};

struct ServeBenchOptions {
  std::string target = "127.0.0.1:50051";
  bool null_server = false;  // measures the client itself, against a no-op server
  DatasetOptions dataset;
  ArrivalOptions arrivals;
  std::optional<int> max_concurrency;
  int num_warmups = 8;
  int repeats = 1;
  int client_threads = 2;
  std::optional<absl::Duration> timeout;
  SummaryOptions summary;
  bool self_check = true;  // of the client's own maximum rate, before the run
  bool allow_failures = false;
  bool progress = true;
  std::optional<std::string> result_dir;
  bool save_detailed = false;
  std::optional<std::string> label;
  std::map<std::string, std::string> metadata;
  std::vector<std::string> args;  // as given, for the record
};

// `bench sweep`: `bench serve` at each of the rates, or each of the concurrencies; the other list
// is empty.
struct SweepBenchOptions {
  ServeBenchOptions serve;
  std::vector<double> request_rates;
  std::vector<int> max_concurrencies;
};

struct CompareBenchOptions {
  std::string before, after;  // result.json of `bench serve`
  bool json = false;
  bool any_workload = false;  // compare results of different loads, too
};

}  // namespace bulkhead
