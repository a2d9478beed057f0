// The options of `bench serve`, which is a client of a server.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/flags/security_options.h"

namespace bulkhead {

enum class DatasetName { kRandom, kPrefixRepetition, kText, kCustom, kTrace };

struct DatasetOptions {
  DatasetName name = DatasetName::kRandom;
  std::optional<std::string> path;  // for kCustom and kTrace
  std::optional<int> num_prompts;   // absent: 1000, or every line of the file
  uint64_t seed = 0;
  int input_len = 1024;
  int output_len = 128;
  double range_ratio = 0;          // lengths are drawn from len * (1 - ratio) to len * (1 + ratio)
  int prefix_len = 0;              // common prefix, in tokens, of all random prompts or a group
  int num_prefixes = 10;           // for kPrefixRepetition
  std::optional<bool> ignore_eos;  // absent: on, except for kCustom
  float temperature = 0;
  double trace_speed = 1;  // divides the trace's times
};

enum class RampUp { kNone, kLinear, kExponential };

struct ArrivalOptions {
  // Requests per second; infinity: all are due at once, or whenever one of max_concurrency ends.
  double request_rate = std::numeric_limits<double>::infinity();
  // The shape of the gamma distribution that gaps are drawn from: 1 is a Poisson process, less is
  // burstier, infinity is one request every 1/rate seconds.
  double burstiness = 1;
  // With a ramp the rate goes from start to end over the requests, and request_rate is ignored.
  RampUp ramp_up = RampUp::kNone;
  double ramp_up_start_rps = 0;
  double ramp_up_end_rps = 0;

  bool open_loop() const {
    return ramp_up != RampUp::kNone || request_rate < std::numeric_limits<double>::infinity();
  }
};

// Limits that a request must all meet to count for goodput; measured from its scheduled arrival.
// Milliseconds.
struct Goodput {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;

  bool operator==(const Goodput&) const = default;
};

struct ServeBenchOptions {
  std::string target = "127.0.0.1:50051";
  ClientCredentials credentials;
  bool null_server = false;  // measures the client itself, against a no-op server
  DatasetOptions dataset;
  ArrivalOptions arrivals;
  std::optional<int> max_concurrency;
  int num_warmups = 8;
  int repeats = 1;
  int client_threads = 2;
  std::optional<absl::Duration> timeout;
  std::vector<double> percents = {90, 95, 99, 99.9};
  Goodput goodput;
  bool self_check = true;  // measures the client's own ceiling before the run
  bool allow_failures = false;
  bool progress = true;
  std::optional<std::string> result_dir;
  bool save_detailed = false;
  std::optional<std::string> label;
  std::map<std::string, std::string> metadata;
  std::vector<std::string> args;  // as given, for the record
};

}  // namespace bulkhead
