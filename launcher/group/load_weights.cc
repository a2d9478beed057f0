#include "launcher/group/load_weights.h"

#include <algorithm>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/log.h"
#include "base/status.h"
#include "launcher/group/startup.h"

namespace bulkhead {
namespace {

// Logs this rank's loading progress from time to time, until destroyed.
class LoadReporter {
 public:
  explicit LoadReporter(const LoadProgress& progress)
      : progress_(progress), begin_(absl::Now()), thread_([this] { Loop(); }) {}
  LoadReporter(const LoadReporter&) = delete;
  LoadReporter& operator=(const LoadReporter&) = delete;
  ~LoadReporter() {
    {
      const absl::MutexLock lock(&mutex_);
      done_ = true;
    }
    thread_.join();
  }
  void Report(const char* what) const {
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin_);
    const int64_t done = progress_.done_bytes;
    const int64_t total = progress_.total_bytes;
    const double rate = static_cast<double>(done) / std::max(seconds, 1e-3);
    BH_LOG(kInfo) << absl::StrFormat("%s: %3.0f %%, %s of %s, %s/s", what,
                                     total > 0 ? 100.0 * done / total : 100.0, FormatBytes(done),
                                     FormatBytes(total), FormatBytes(static_cast<int64_t>(rate)));
  }

 private:
  void Loop() {
    const absl::MutexLock lock(&mutex_);
    while (!mutex_.AwaitWithTimeout(absl::Condition(&done_), absl::Seconds(2))) {
      Report("loading weights");
    }
  }
  const LoadProgress& progress_;
  absl::Time begin_;
  absl::Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

absl::Status LoadModel(const ModelSource& source, const ShardPlan& plan, ModelRunner& runner,
                       const char* done, Group& group, RankEngine& engine) {
  LoadProgress progress;
  const LoadReporter reporter(progress);
  BH_RETURN_IF_ERROR(LoadWeights(*source.checkpoint, plan.rank(engine.topology.rank),
                                 runner.weights(), *engine.backend, engine.threads.num_threads,
                                 &progress, IsLost(group), source.adapters));
  engine.loaded_bytes += progress.done_bytes;
  reporter.Report(done);
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadAllWeights(Group& group, absl::Duration timeout, RankEngine& engine) {
  return RunPhase(group.exchange(), "weights", timeout, [&]() -> absl::Status {
    const absl::Time begin = absl::Now();
    BH_RETURN_IF_ERROR(
        LoadModel(engine.source, *engine.plan, *engine.runner, "weights loaded", group, engine));
    if (engine.topology.coordinator() && !engine.source.adapters.empty())
      BH_LOG(kInfo) << AdaptersText(engine.plan->rank(0), engine.source.formats.weights,
                                    *engine.backend);
    if (engine.draft != nullptr) {
      BH_RETURN_IF_ERROR(LoadModel(*engine.source.draft, engine.draft->plan, *engine.draft->runner,
                                   "weights of the draft model loaded", group, engine));
    }
    engine.load_time = absl::Now() - begin;
    return absl::OkStatus();
  });
}

}  // namespace bulkhead
