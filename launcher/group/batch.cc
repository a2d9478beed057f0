#include "launcher/group/batch.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/exit_status.h"
#include "launcher/gather_messages.h"
#include "launcher/group/rank_process.h"
#include "launcher/group/startup.h"

namespace bulkhead {
namespace {

// How long a reader of results may stall when the process ends.
constexpr absl::Duration kLastLines = absl::Milliseconds(800);

// Requests that were submitted together. Thread-safe.
class GeneratedBatch {
 public:
  GeneratedBatch(size_t count, std::function<void(size_t, OutputDelta)> on_delta)
      : on_delta_(std::move(on_delta)), unfinished_(count), none_left_(count == 0) {}

  void Add(size_t i, OutputDelta delta) {
    all_submitted_.WaitForNotification();
    on_delta_(i, std::move(delta));
  }
  void End(const absl::Status& status) {
    const absl::MutexLock lock(&mutex_);
    status_.Update(status);
    none_left_ = --unfinished_ == 0;
  }
  // Once all are submitted.
  absl::Status Wait() {
    all_submitted_.Notify();
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&none_left_));
    return status_;
  }

 private:
  const std::function<void(size_t, OutputDelta)> on_delta_;
  absl::Notification all_submitted_;
  absl::Mutex mutex_;
  size_t unfinished_ ABSL_GUARDED_BY(mutex_);
  bool none_left_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

class GeneratedSink final : public RequestSink {
 public:
  GeneratedSink(std::shared_ptr<GeneratedBatch> batch, size_t i)
      : batch_(std::move(batch)), i_(i) {}
  void OnDelta(OutputDelta delta) override { batch_->Add(i_, std::move(delta)); }
  void OnEnd(RequestEnd end) override { batch_->End(end.status); }

 private:
  const std::shared_ptr<GeneratedBatch> batch_;
  const size_t i_;
};

int64_t PeakResidentBytes() {
  rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{usage.ru_maxrss} << 10 : 0;
}

// Runs the rank loop until its clean stop; returns this rank's measurements.
RankFigures RunMeasured(RankProcess& process, RankEngine& engine, Coordinator* coordinator) {
  RankFigures figures;
  figures.set_host(engine.topology.hosts[engine.topology.rank]);
  figures.set_load_s(absl::ToDoubleSeconds(engine.load_time));
  figures.set_load_bytes(engine.loaded_bytes);
  figures.set_clock_offset_us(engine.clocks[engine.topology.rank].offset_us);
  figures.set_clock_error_us(engine.clocks[engine.topology.rank].error_us);
  InstrumentedStepRunner runner = InstrumentedStepRunnerOf(engine, figures, nullptr);
  process.RunSteps(runner, coordinator);
  figures.set_resident_bytes_peak(PeakResidentBytes());
  return figures;
}

// The requests' lines are written meanwhile, possibly to a full pipe. The process then ends,
// including threads that still wait.
void FailWithin(absl::Duration patience, Coordinator& coordinator, const absl::Status& why) {
  const auto failed = std::make_shared<absl::Notification>();
  std::thread([&coordinator, why, failed] {
    coordinator.Fail(why);
    failed->Notify();
  }).detach();
  failed->WaitForNotificationWithTimeout(patience);
}

absl::Status RunOnCoordinator(RankProcess& process, RankEngine& engine, BatchJob& job) {
  const EngineOptions& options = process.options();
  BH_RETURN_IF_ERROR(RunPhase(process.group().exchange(), "outputs", options.startup_timeout,
                              [&] { return job.Prepare(engine); }));
  SchedulerLimits limits =
      SchedulerLimitsOf(engine, options, static_cast<int>(std::max<size_t>(job.size(), 1)));
  Coordinator coordinator(CoordinatorOptions(engine, limits));
  coordinator.SetServing();
  const absl::Time begin = absl::Now();
  std::once_flag told;
  const auto tell = [&] {
    const std::string progress = job.Progress(absl::Now() - begin);
    if (!progress.empty()) BH_LOG(kInfo) << progress;
  };
  process.SetEnding({.fail =
                         [&](const absl::Status& why) {
                           if (ExitCodeOf(why) == kReaderGone) return;  // no client to tell
                           std::call_once(told, tell);  // before the requests that it ends fail
                           FailWithin(kLastLines, coordinator, why);
                         },
                     .flush = nullptr});
  std::thread feeder([&] {
    job.Feed(coordinator);
    std::call_once(told, tell);
    coordinator.BeginDrain(absl::InfiniteDuration());
  });
  const RankFigures mine = RunMeasured(process, engine, &coordinator);
  feeder.join();
  process.SetEnding({});
  BH_ASSIGN_OR_RETURN(std::vector<RankFigures> figures,
                      GatherMessages(process.group().exchange(), mine, options.startup_timeout));
  job.TakeFigures(std::move(figures));
  // The other ranks succeed even if single lines failed: the group shuts down in order.
  return MarkAgreed(job.Outcome());
}

absl::Status RunOnGroup(RankProcess& process,
                        const std::function<absl::StatusOr<std::unique_ptr<BatchJob>>()>& make) {
  const EngineOptions& options = process.options();
  GroupExchange& exchange = process.group().exchange();
  std::unique_ptr<BatchJob> job;
  BH_RETURN_IF_ERROR(RunPhase(exchange, "prompts", options.startup_timeout, [&]() -> absl::Status {
    if (!exchange.topology().coordinator()) return absl::OkStatus();
    BH_ASSIGN_OR_RETURN(job, make());
    return job->Open([&process](const absl::Status& why) { process.End(why); });
  }));
  BH_ASSIGN_OR_RETURN(const std::unique_ptr<RankEngine> engine,
                      StartEngine(options, process.group(), nullptr, nullptr));
  process.SetStepLimits(engine->step_limits);
  if (job != nullptr) {
    LogReport(*engine);
    return RunOnCoordinator(process, *engine, *job);
  }
  BH_RETURN_IF_ERROR(
      RunPhase(exchange, "outputs", options.startup_timeout, [] { return absl::OkStatus(); }));
  const RankFigures mine = RunMeasured(process, *engine, nullptr);
  return GatherMessages(exchange, mine, options.startup_timeout).status();
}

}  // namespace

absl::Status CheckApart(const std::string& out_flag, const std::string& out,
                        const std::string& other_flag, const std::string& other) {
  std::error_code absent;
  const bool same = out == other || std::filesystem::equivalent(out, other, absent);
  if (out == "-" || !same) return absl::OkStatus();
  return WithExitCode(
      absl::InvalidArgumentError(absl::StrCat(
          out_flag, " and ", other_flag, " are both ", out,
          out == other ? std::string() : absl::StrCat(" (", other, ")"), "; name another")),
      ExitCode::kUsage);
}

absl::Status ResultLines::Open(const std::string& path, EndRank end) {
  path_ = path;
  end_ = std::move(end);
  if (path_ == "-") {
    // See PrintLine; results pass a terminal, so how much of them mpirun has read is unknown.
    if (std::getenv("PRTE_LAUNCHED") != nullptr)
      BH_LOG(kWarning) << "mpirun of Open MPI 5 can print parts of the results among the log; use "
                          "--out FILE";
    return absl::OkStatus();
  }
  file_.open(path_, std::ios::trunc);
  if (file_.is_open()) return absl::OkStatus();
  return CannotWrite("--out", path_);
}

std::ostream& ResultLines::out() { return path_ == "-" ? std::cout : file_; }

void ResultLines::Expect(size_t count) {
  const absl::MutexLock lock(&mutex_);
  lines_.resize(count);
}

void ResultLines::Set(size_t i, std::string line) {
  const absl::MutexLock lock(&mutex_);
  lines_[i] = std::move(line);
  while (next_ < lines_.size() && lines_[next_].has_value()) {
    out() << *lines_[next_] << "\n";
    lines_[next_++].reset();
  }
  out().flush();
  if (path_ != "-") return;
  // Without a reader computation stops.
  const absl::Status flushed = FlushStandardOutput();
  if (ExitCodeOf(flushed) == kReaderGone) end_(flushed);
}

void ResultLines::WaitForAll() {
  const auto all_written = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return next_ == lines_.size();
  };
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&all_written));
}

absl::Status ResultLines::Close() {
  if (path_ == "-") return FlushStandardOutput();
  file_.close();
  if (!file_.fail()) return absl::OkStatus();
  return WithExitCode(absl::DataLossError(absl::StrCat("writing --out ", path_, " failed")),
                      ExitCode::kClientError);
}

absl::Status RunBatch(const EngineOptions& options,
                      const std::function<absl::StatusOr<std::unique_ptr<BatchJob>>()>& make) {
  return RunRankProcess(options, [&](RankProcess& process) { return RunOnGroup(process, make); });
}

void UseAdapter(const std::vector<AdapterConfig>& adapters, size_t which, Request& request) {
  request.adapter = static_cast<int>(which);
  request.adapter_name = which == 0 ? "" : adapters[which - 1].name;
}

absl::Status GenerateAll(Coordinator& coordinator, std::vector<Request> requests, int64_t& last_id,
                         const std::function<void(size_t i, OutputDelta delta)>& on_delta) {
  const auto batch = std::make_shared<GeneratedBatch>(requests.size(), on_delta);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].request_id = absl::StrCat(++last_id);
    requests[i].wants_text = false;
    const absl::Status status =
        coordinator.Submit(std::move(requests[i]), std::make_shared<GeneratedSink>(batch, i));
    if (!status.ok()) batch->End(status);
  }
  return batch->Wait();
}

std::string DoneText(int done, size_t count, const char* what, absl::Duration taken) {
  const std::string of = static_cast<size_t>(done) == count ? "" : absl::StrCat(done, " of ");
  return absl::StrFormat("%s%d %s%s in %.2f s", of, count, what, count == 1 ? "" : "s",
                         absl::ToDoubleSeconds(taken));
}

absl::Status FailedLines(int failed, size_t count, const char* what) {
  if (failed == 0) return absl::OkStatus();
  return WithExitCode(
      absl::InvalidArgumentError(absl::StrCat(failed, " of ", count, " ", what,
                                              count == 1 ? "" : "s", " failed; see their lines")),
      ExitCode::kClientError);
}

}  // namespace bulkhead
