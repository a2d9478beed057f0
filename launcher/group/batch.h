// Common to the offline commands (run, score): a file of lines is processed by a group without a
// server, and the results are written in input order.
#pragma once

#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "launcher/flags/options.h"
#include "launcher/group/rank_engine.h"
#include "runtime/engine/coordinator.h"

namespace bulkhead {

// Ends this rank at once (RankProcess::End).
using EndRank = std::function<void(const absl::Status& why)>;

// The results file; each line is written as soon as all previous ones are. Set and WaitForAll are
// thread-safe.
class ResultLines {
 public:
  // `path` "-" is standard output: `end` is called when its reader is gone. INVALID_ARGUMENT with
  // exit code 2 if it cannot be written.
  absl::Status Open(const std::string& path, EndRank end);
  void Expect(size_t count);
  // Once per line, without the newline.
  void Set(size_t i, std::string line);
  void WaitForAll();
  // Whether everything was written; otherwise DATA_LOSS with exit code 1.
  absl::Status Close();

 private:
  std::ostream& out();

  std::string path_;
  EndRank end_;
  std::ofstream file_;
  absl::Mutex mutex_;
  std::vector<std::optional<std::string>> lines_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
};

// INVALID_ARGUMENT with exit code 2 if both are the same file, which would be overwritten: "--out
// and --prompts are both x".
absl::Status CheckApart(const std::string& out_flag, const std::string& out,
                        const std::string& other_flag, const std::string& other);

// The part of such a command that only rank 0 does.
class BatchJob {
 public:
  virtual ~BatchJob() = default;
  // Before anything slow: checks that the results can be written.
  virtual absl::Status Open(const EndRank& end) = 0;
  virtual absl::Status Prepare(const RankEngine& engine) = 0;
  // On its own thread, concurrent with the rank loop: submits, and waits for all results.
  virtual void Feed(Coordinator& coordinator) = 0;
  // Progress and speed in one line; "": nothing to report. Any thread, from Prepare on.
  virtual std::string Progress(absl::Duration /*taken*/) const { return ""; }
  // All ranks' measurements, by rank; between Feed and Outcome.
  virtual void TakeFigures(std::vector<RankFigures> /*figures*/) {}
  virtual absl::Status Outcome() = 0;
  virtual size_t size() const = 0;
};

// Collective: starts the engine and runs the job that `make` returns on rank 0. Returns the final
// status with the exit code. Must be called before the process has threads.
absl::Status RunBatch(const EngineOptions& options,
                      const std::function<absl::StatusOr<std::unique_ptr<BatchJob>>()>& make);

// The adapter `which` (1-based); 0: none.
void UseAdapter(const std::vector<AdapterConfig>& adapters, size_t which, Request& request);

// Submits all requests, their ids 1, 2, ... after `last_id`, and waits until all have ended.
// Returns the first error. `on_delta` gets request i's output, on the rank loop's thread, once all
// are submitted: otherwise the first might end before the last has begun.
absl::Status GenerateAll(Coordinator& coordinator, std::vector<Request> requests, int64_t& last_id,
                         const std::function<void(size_t i, OutputDelta delta)>& on_delta);

// "2 of 3 prompts in 1.50 s", or "3 prompts in 1.50 s" if all are done.
std::string DoneText(int done, size_t count, const char* what, absl::Duration taken);

// Exit code 1 and a count, unless all lines succeeded. `what` is the singular: "prompt".
absl::Status FailedLines(int failed, size_t count, const char* what);

}  // namespace bulkhead
