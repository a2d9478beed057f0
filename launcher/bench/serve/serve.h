// `bulkhead bench serve`: measures a running server as a client.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "launcher/bench/serve/raw_result.h"
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
  mutable absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  LoadGenerator* generator_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// One measurement: connects, warms up and runs. Fails when there is no server, or when the options
// do not fit it; failures of requests are in the result.
absl::StatusOr<RawResult> Measure(const ServeBenchOptions& options, BenchStop* stop);

// Measures, leaves run.json and requests.jsonl in options.result_dir and becomes the Python tool,
// which prints the table and writes the rest. Returns only on failure.
absl::Status RunServeBench(const ServeBenchOptions& options);

}  // namespace bulkhead
