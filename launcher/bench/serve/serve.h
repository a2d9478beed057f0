// `bulkhead bench serve`: measures a running server from a client's place.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/bench/serve/bench_result.h"
#include "launcher/flags/serve_bench_options.h"

namespace bulkhead {

class LoadGenerator;

// Lets a signal end a measurement. Thread-safe.
class BenchStop {
 public:
  void Attach(LoadGenerator* generator);  // nullptr detaches
  void Stop();
  bool stopped() const;

 private:
  mutable std::mutex mutex_;
  bool stopped_ = false;
  LoadGenerator* generator_ = nullptr;
};

// One measurement: connects, warms up, runs and sums up. Fails when there is no server, or when the
// options do not fit it; failures of requests are in the result. `ceiling`: of this client, where
// it has been measured already.
absl::StatusOr<BenchResult> Measure(const ServeBenchOptions& options,
                                    const std::optional<ClientCeiling>& ceiling, BenchStop* stop);

// INVALID_ARGUMENT with exit code 2 when `dir` cannot be made or written into.
absl::Status MakeResultDir(const std::optional<std::string>& dir);
// DATA_LOSS with exit code 1 when it cannot be written.
absl::Status WriteTextFile(const std::filesystem::path& path, const std::string& text);

// result.json, requests.jsonl and report.html in options.result_dir, if there is one.
absl::Status SaveResult(const BenchResult& result);

// OK unless requests failed (exit code 1) and options.allow_failures is off.
absl::Status OutcomeOf(const BenchResult& result);

absl::Status RunServeBench(const ServeBenchOptions& options);

}  // namespace bulkhead
