// What the offline commands (run, score) have in common: a file of lines goes through a group with
// no server, and the results are written in the order of the lines.
#pragma once

#include <condition_variable>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/bench/rank_figures.h"
#include "launcher/flags/options.h"
#include "launcher/group/startup.h"
#include "runtime/engine/coordinator.h"

namespace bulkhead {

// The file of results, each line written as soon as those before it are. Set and WaitForAll are
// thread-safe.
class ResultLines {
 public:
  // `path` "-" is standard output. INVALID_ARGUMENT with exit code 2 when it cannot be written.
  absl::Status Open(const std::string& path);
  void Expect(size_t count) { lines_.resize(count); }
  // Once for each line, without its newline.
  void Set(size_t i, std::string line);
  void WaitForAll();
  // Whether everything got there; DATA_LOSS with exit code 1 otherwise.
  absl::Status Close();

 private:
  std::ostream& out();

  std::string path_;
  std::ofstream file_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<std::optional<std::string>> lines_;
  size_t next_ = 0;
};

// INVALID_ARGUMENT with exit code 2 when both name one file, which would be lost: "--out and
// --prompts are both x".
absl::Status CheckApart(const std::string& out_flag, const std::string& out,
                        const std::string& other_flag, const std::string& other);

// Everything of such a command that rank 0 alone does.
class BatchJob {
 public:
  virtual ~BatchJob() = default;
  // Before anything slow: can the results be written?
  virtual absl::Status Open() = 0;
  virtual absl::Status Prepare(const RankEngine& engine) = 0;
  // On a thread of its own, beside the rank loop: submits, and waits for all results.
  virtual void Feed(Coordinator& coordinator) = 0;
  // What every rank measured, by rank; between Feed and Outcome.
  virtual void TakeFigures(std::vector<RankFigures> /*figures*/) {}
  virtual absl::Status Outcome() = 0;
  virtual size_t size() const = 0;
};

// Collective: starts the engine and runs the job that `make` gives on rank 0. The status to end
// with, carrying the exit code. Must be called before the process has threads.
absl::Status RunBatch(const EngineOptions& options,
                      const std::function<absl::StatusOr<std::unique_ptr<BatchJob>>()>& make);

// Exit code 1 and a count, unless all lines went well. `what` one of them is: "prompt".
absl::Status FailedLines(int failed, size_t count, const char* what);

}  // namespace bulkhead
