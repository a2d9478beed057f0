#include "launcher/bench/throughput.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/message_json.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/bench/provenance.h"
#include "launcher/bench/throughput_result.h"
#include "launcher/exit_status.h"
#include "launcher/group/batch.h"
#include "launcher/version.h"

namespace bulkhead {
namespace {

// When every token of a batch came. Thread-safe.
class BatchTimes {
 public:
  explicit BatchTimes(int batch_size) : sequences_(batch_size) {}

  // The rank loop waits here until all sequences were submitted: else the first of them may have
  // ended before the last has begun, where the machine is busy.
  void AddTokens(int i, size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    submitted_.wait(lock, [this] { return all_submitted_; });
    const double now = std::chrono::duration<double>(Clock::now() - begin_).count();
    sequences_[i].token_s.insert(sequences_[i].token_s.end(), count, now);
  }
  void AllSubmitted() {
    const std::lock_guard<std::mutex> lock(mutex_);
    all_submitted_ = true;
    submitted_.notify_all();
  }
  void End(const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    status_.Update(status);
    ++ended_;
    done_.notify_all();
  }
  // When all have ended: their times, or what went wrong first.
  absl::StatusOr<std::vector<SequenceTimes>> Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return ended_ == sequences_.size(); });
    if (!status_.ok()) return status_;
    return sequences_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  const Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable done_;
  std::condition_variable submitted_;
  bool all_submitted_ = false;
  std::vector<SequenceTimes> sequences_;
  size_t ended_ = 0;
  absl::Status status_;
};

class TimeSink final : public RequestSink {
 public:
  TimeSink(std::shared_ptr<BatchTimes> times, int i) : times_(std::move(times)), i_(i) {}
  void OnDelta(OutputDelta delta) override { times_->AddTokens(i_, delta.tokens.size()); }
  void OnEnd(RequestEnd end) override { times_->End(end.status); }

 private:
  const std::shared_ptr<BatchTimes> times_;
  const int i_;
};

class ThroughputJob final : public BatchJob {
 public:
  explicit ThroughputJob(const ThroughputOptions& options) : options_(options) {
    for (const int batch_size : options.batch_sizes) {
      for (const int input_len : options.input_lens) {
        cases_.push_back({batch_size, input_len, options.output_len, {}});
      }
    }
  }

  absl::Status Open() override {
    if (!options_.out.has_value()) return absl::OkStatus();
    out_.open(*options_.out, std::ios::trunc);
    if (out_.is_open()) return absl::OkStatus();
    return CannotWrite("--out", *options_.out);
  }

  absl::Status Prepare(const RankEngine& engine) override {
    engine_ = &engine;
    for (const ThroughputCase& one : cases_) {
      if (one.batch_size > engine.limits.max_num_seqs) {
        BH_LOG(kWarning) << "batch " << one.batch_size << " is more than max_num_seqs "
                         << engine.limits.max_num_seqs << ": the rest waits its turn";
      }
      const int len = one.input_len + one.output_len;
      if (len > engine.limits.max_model_len) {
        return WithExitCode(
            absl::InvalidArgumentError(
                absl::StrCat("--input-len ", one.input_len, " and --output-len ", one.output_len,
                             " need max_model_len ", len, "; it is ", engine.limits.max_model_len)),
            ExitCode::kUsage);
      }
    }
    return absl::OkStatus();
  }

  void Feed(Coordinator& coordinator) override {
    for (ThroughputCase& one : cases_) {
      // The first run of a case is not counted: it warms caches and clocks.
      for (int run = -1; run < options_.repeats && status_.ok(); ++run) {
        const absl::StatusOr<ThroughputRun> result = RunOnce(coordinator, one);
        status_.Update(result.status());
        if (result.ok() && run >= 0) one.runs.push_back(*result);
      }
      if (!status_.ok()) break;
      BH_LOG(kInfo) << LastRunText(one);
    }
    load_ = coordinator.Load();
  }

  void TakeFigures(std::vector<RankFigures> figures) override { figures_ = std::move(figures); }

  absl::Status Outcome() override {
    if (!status_.ok()) return WithExitCode(status_, ExitCode::kClientError);
    const std::string json = ThroughputJson(Facts(), cases_);
    std::cout << (options_.json ? json : ThroughputTable(Facts(), cases_));
    BH_RETURN_IF_ERROR(FlushStandardOutput());
    if (!options_.out.has_value()) return absl::OkStatus();
    out_ << json;
    out_.close();
    if (!out_.fail()) return absl::OkStatus();
    return WithExitCode(
        absl::DataLossError(absl::StrCat("writing --out ", *options_.out, " failed")),
        ExitCode::kClientError);
  }

  size_t size() const override {
    return *std::max_element(options_.batch_sizes.begin(), options_.batch_sizes.end());
  }

 private:
  // Random ids, the same in every run of the program; nobody's prompt begins like another's beyond
  // the shared part.
  std::vector<TokenId> Prompt(int input_len) {
    std::mt19937_64 shared(1);
    std::vector<TokenId> prompt;
    const auto vocab = static_cast<uint64_t>(engine_->source.config.model.vocab_size);
    for (int i = 0; i < input_len; ++i) {
      prompt.push_back(
          static_cast<TokenId>((i < options_.shared_prefix_len ? shared() : random_()) % vocab));
    }
    return prompt;
  }

  absl::StatusOr<ThroughputRun> RunOnce(Coordinator& coordinator, const ThroughputCase& one) {
    std::vector<Request> requests(one.batch_size);
    for (Request& request : requests) {
      request.request_id = absl::StrCat(++last_request_);
      request.prompt = Prompt(one.input_len);
      request.sampling.temperature = 0;
      request.stopping.max_tokens = one.output_len;
      request.stopping.ignore_eos = true;
      request.wants_text = false;
    }
    auto times = std::make_shared<BatchTimes>(one.batch_size);
    for (int i = 0; i < one.batch_size; ++i) {
      const absl::Status status =
          coordinator.Submit(std::move(requests[i]), std::make_shared<TimeSink>(times, i));
      if (!status.ok()) times->End(status);
    }
    times->AllSubmitted();
    BH_ASSIGN_OR_RETURN(const std::vector<SequenceTimes> sequences, times->Wait());
    const int computed = std::max(one.input_len - options_.shared_prefix_len, 1);
    return RunOf(sequences, int64_t{one.batch_size} * computed);
  }

  ThroughputFacts Facts() const {
    const ModelLimits& limits = engine_->limits;
    const ReportFacts report = engine_->facts();
    ThroughputFacts facts;
    facts.version = std::string(Version());
    facts.date = DateText();
    facts.cpu = CpuName();
    facts.model = options_.engine.model;
    facts.architecture = engine_->source.config.model.architecture;
    facts.weight_dtype = WeightFormatsText(limits.weights);
    facts.activation_dtype = limits.activation == ActivationDType::kInt8 ? "int8" : "float32";
    facts.kv_cache_dtype = report.kv_cache_dtype;
    facts.ranks = engine_->topology.size;
    facts.threads = engine_->threads.num_threads;
    facts.shared_prefix_len = options_.shared_prefix_len;
    facts.num_kv_blocks = limits.num_kv_blocks;
    facts.num_kv_blocks_used_peak = load_.scheduler.pressure.peak_blocks_used;
    facts.device_allocations_after_ready = report.device_allocations_after_ready;
    facts.num_preemptions = load_.scheduler.preemptions_total;
    facts.rank_figures = figures_;
    facts.capacity_json = MessageToJsonText(ReportOf(engine_->capacity, {}, report));
    return facts;
  }

  const ThroughputOptions& options_;
  const RankEngine* engine_ = nullptr;
  std::vector<ThroughputCase> cases_;
  std::ofstream out_;
  std::mt19937_64 random_{2};
  int64_t last_request_ = 0;
  CoordinatorLoad load_;
  std::vector<RankFigures> figures_;  // of each rank
  absl::Status status_;
};

}  // namespace

absl::Status RunThroughput(const ThroughputOptions& options) {
  return RunBatch(options.engine, [&]() -> absl::StatusOr<std::unique_ptr<BatchJob>> {
    return std::make_unique<ThroughputJob>(options);
  });
}

}  // namespace bulkhead
