#include "launcher/bench/serve/serve.h"
#include "base/periodic_thread.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "launcher/bench/serve/arrivals.h"
#include "launcher/bench/serve/dataset.h"
#include "launcher/bench/serve/load_generator.h"
#include "launcher/bench/serve/null_server.h"
#include "launcher/python_tool.h"
#include "launcher/signal_thread.h"
#include "launcher/version.h"
#include "memory/host_memory.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(200);
constexpr int kWarmupRun = -1;

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

// One line that is written over on a terminal, or one every ten seconds elsewhere.
class ProgressLine {
 public:
  ProgressLine(bool on, int total)
      : on_(on), total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}
  ~ProgressLine() {
    if (shown_ && terminal_) std::cerr << "\n";
  }

  void Show(int run, const LoadProgress& progress) {
    const absl::Time now = absl::Now();
    if (!on_ || (!terminal_ && now < next_)) return;
    next_ = now + absl::Seconds(10);
    const double seconds = absl::ToDoubleSeconds(now - begin_);
    const std::string line = absl::StrFormat(
        "run %d: %d of %d ended, %d failed, %d in flight, %.1f tokens/s", run + 1,
        progress.completed + progress.failed, total_, progress.failed, progress.in_flight(),
        seconds > 0 ? static_cast<double>(progress.tokens) / seconds : 0.0);
    std::cerr << (terminal_ ? "\r\033[K" : "") << line << (terminal_ ? "" : "\n") << std::flush;
    shown_ = true;
  }

 private:
  const bool on_;
  const int total_;
  const bool terminal_;
  const absl::Time begin_ = absl::Now();
  absl::Time next_ = begin_ + absl::Seconds(10);
  bool shown_ = false;
};

// The steps of one measurement, in order.
class Measurement {
 public:
  Measurement(const ServeBenchOptions& options, BenchStop* stop) : options_(options), stop_(stop) {
    result_.options = options;
    result_.version = std::string(Version());
    result_.date = absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone());
    result_.client_host = HostName();
  }
  ~Measurement() { stop_->Attach(nullptr); }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  absl::StatusOr<RawResult> Run() {
    BH_RETURN_IF_ERROR(Open());
    for (int run = 0; run < options_.repeats && !result_.interrupted; ++run) {
      BH_ASSIGN_OR_RETURN(BenchPrompts prompts, MakePrompts(options_.dataset, facts_, run));
      if (run == 0) BH_RETURN_IF_ERROR(WarmUp(static_cast<int>(prompts.requests.size())));
      RunOnce(run, std::move(prompts));
    }
    return std::move(result_);
  }

 private:
  absl::Status Open() {
    const absl::StatusOr<HostMemory> memory = ProbeHostMemory();
    if (memory.ok()) facts_.client_bytes = std::max<int64_t>(1, memory->available_bytes / 2);
    std::string target = options_.target;
    ClientCredentials credentials = options_.credentials;
    if (options_.null_server) {
      BH_ASSIGN_OR_RETURN(null_server_, NullServer::Start());
      target = null_server_->target();
      credentials = {};
    }
    BH_ASSIGN_OR_RETURN(generator_, LoadGenerator::Connect(target, options_.client_threads,
                                                           options_.timeout, credentials));
    stop_->Attach(generator_.get());
    if (!options_.null_server) {
      BH_ASSIGN_OR_RETURN(result_.server, AskFacts(generator_->channel(), target));
      facts_.vocab_size = result_.server->model.vocab_size();
      facts_.max_model_len = static_cast<int>(result_.server->server.max_model_len());
      if (options_.dataset.name == DatasetName::kText && result_.server->model.supports_text()) {
        BH_ASSIGN_OR_RETURN(facts_.text_ids,
                            AskTokens(generator_->channel(), target, BuiltInText()));
      }
    }
    if (!options_.self_check) return absl::OkStatus();
    BH_ASSIGN_OR_RETURN(result_.ceiling, MeasureCeiling(options_.client_threads));
    return absl::OkStatus();
  }

  // Without its own salt each run would find the prompts of the previous run, and of the last
  // measurement with this seed, in the prefix cache.
  void Salt(int run, BenchPrompts* prompts) const {
    const std::string salt = absl::StrCat("bench-", absl::ToUnixNanos(begin_), "-", run);
    for (v1::GenerateRequest& request : prompts->requests) {
      if (!request.has_cache_salt()) request.set_cache_salt(salt);
    }
  }

  absl::Status WarmUp(int num_prompts) {
    DatasetOptions dataset = options_.dataset;
    dataset.num_prompts = std::min(options_.num_warmups, num_prompts);
    if (*dataset.num_prompts == 0) return absl::OkStatus();
    absl::StatusOr<BenchPrompts> prompts = MakePrompts(dataset, facts_, kWarmupRun);
    BH_CHECK(prompts.ok());  // a prefix of the prompts made before
    Salt(kWarmupRun, &*prompts);
    LoadPlan plan;
    plan.requests = &prompts->requests;
    plan.max_concurrency = options_.max_concurrency.value_or(*dataset.num_prompts);
    const RunRecord run = generator_->Run(plan);
    if (!generator_->server_is_gone()) return absl::OkStatus();
    const RequestRecord& first = run.requests.front();
    return WithExitCode(absl::UnavailableError(absl::StrCat(
                            "no request of the warm-up found a server: ", first.message)),
                        ExitCode::kClientError);
  }

  LoadPlan PlanOf(int run, const BenchPrompts& prompts) const {
    LoadPlan plan;
    plan.requests = &prompts.requests;
    plan.max_concurrency = options_.max_concurrency;
    plan.run = run;
    if (!prompts.due_s.empty()) {
      plan.due_s = prompts.due_s;
    } else if (options_.arrivals.open_loop() || !options_.max_concurrency.has_value()) {
      plan.due_s = ArrivalTimes(options_.arrivals, static_cast<int>(prompts.requests.size()),
                                options_.dataset.seed + run);
    }
    return plan;
  }

  void RunOnce(int run, BenchPrompts prompts) {
    Salt(run, &prompts);
    ProgressLine progress(options_.progress, static_cast<int>(prompts.requests.size()));
    TakeSample();
    {
      PeriodicThread looks(kLookEvery, PeriodicThread::First::kNow, [&] {
        TakeSample();
        progress.Show(run, generator_->progress());
      });
      result_.runs.push_back(generator_->Run(PlanOf(run, prompts)));
    }
    TakeSample();
    result_.busiest_thread_share =
        std::max(result_.busiest_thread_share, generator_->busiest_thread_share());
    result_.interrupted = stop_->stopped() || generator_->server_is_gone();
  }

  void TakeSample() {
    if (options_.null_server) return;
    const absl::StatusOr<v1::LoadInfo> load = AskLoad(generator_->channel(), options_.target);
    if (!load.ok()) return;  // the requests' own failures report it
    result_.samples.push_back({absl::ToDoubleSeconds(absl::Now() - begin_), *load});
  }

  const ServeBenchOptions& options_;
  BenchStop* stop_;
  const absl::Time begin_ = absl::Now();
  RawResult result_;
  DatasetFacts facts_;
  std::unique_ptr<NullServer> null_server_;
  std::unique_ptr<LoadGenerator> generator_;
};

absl::Status WriteTextFile(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc | std::ios::binary);
  file << text;
  file.close();
  if (!file.fail()) return absl::OkStatus();
  return WithExitCode(absl::DataLossError(absl::StrCat("cannot write ", path.string())),
                      ExitCode::kClientError);
}

absl::Status MakeResultDir(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (!error && access(dir.c_str(), W_OK) == 0) return absl::OkStatus();
  return WithExitCode(
      absl::InvalidArgumentError(absl::StrCat("cannot write into --result-dir ", dir)),
      ExitCode::kUsage);
}

// A new folder for the tool, which removes it.
absl::StatusOr<std::string> MakeTemporaryDir() {
  std::string dir = std::filesystem::temp_directory_path() / "bulkhead-bench-XXXXXX";
  if (mkdtemp(dir.data()) != nullptr) return dir;
  return WithExitCode(absl::DataLossError(absl::StrCat("cannot make ", dir)),
                      ExitCode::kClientError);
}

}  // namespace

void BenchStop::Attach(LoadGenerator* generator) {
  const absl::MutexLock lock(&mutex_);
  generator_ = generator;
  if (stopped_ && generator_ != nullptr) generator_->Stop();
}

void BenchStop::Stop() {
  const absl::MutexLock lock(&mutex_);
  stopped_ = true;
  if (generator_ != nullptr) generator_->Stop();
}

bool BenchStop::stopped() const {
  const absl::MutexLock lock(&mutex_);
  return stopped_;
}

absl::StatusOr<RawResult> Measure(const ServeBenchOptions& options, BenchStop* stop) {
  return Measurement(options, stop).Run();
}

absl::Status RunServeBench(const ServeBenchOptions& options) {
  if (options.result_dir.has_value()) BH_RETURN_IF_ERROR(MakeResultDir(*options.result_dir));
  BH_RETURN_IF_ERROR(CheckPythonTool());
  RawResult result;
  {
    BenchStop stop;
    std::atomic<int> ended_by{0};
    SignalThread signals({SIGINT, SIGTERM}, [&](const ReceivedSignal& signal) {
      if (ended_by.exchange(signal.number) != 0) _exit(128 + signal.number);
      stop.Stop();
    });
    BH_ASSIGN_OR_RETURN(result, Measure(options, &stop));
    result.signal = ended_by;
  }
  std::vector<std::string> args = {"report"};
  if (!options.result_dir.has_value()) args.emplace_back("--remove");
  BH_ASSIGN_OR_RETURN(args.emplace_back(), options.result_dir.has_value()
                                               ? absl::StatusOr<std::string>(*options.result_dir)
                                               : MakeTemporaryDir());
  const std::filesystem::path dir = args.back();
  BH_RETURN_IF_ERROR(WriteTextFile(dir / "run.json", RunJson(result)));
  BH_RETURN_IF_ERROR(WriteTextFile(dir / "requests.jsonl", RequestsJsonLines(result.runs)));
  return BecomePythonTool(args);
}

}  // namespace bulkhead
