#include "launcher/run.h"

#include <condition_variable>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "launcher/exit_status.h"
#include "launcher/logits_file.h"
#include "launcher/prompts.h"
#include "launcher/rank_life.h"
#include "launcher/startup.h"
#include "launcher/wire.h"
#include "memory/bytes.h"
#include "memory/exit_code.h"
#include "memory/log.h"
#include "memory/status.h"
#include "runtime/service/message_conversion.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {
namespace {

// Results in the order of the prompts, each written as soon as those before it are.
class ResultWriter {
 public:
  ResultWriter(std::ostream& out, size_t count) : out_(out), results_(count) {}

  void Set(size_t i, GenerationResult result) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_ += result.status.ok() ? 0 : 1;
    prompt_tokens_ += static_cast<int64_t>(result.prompt_token_ids.size());
    generated_tokens_ += static_cast<int64_t>(result.tokens.size());
    results_[i] = std::move(result);
    while (next_ < results_.size() && results_[next_].has_value()) {
      out_ << ResultLine(*results_[next_]) << "\n";
      results_[next_++].reset();
    }
    out_.flush();
    if (next_ == results_.size()) done_.notify_all();
  }
  void WaitForAll() {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return next_ == results_.size(); });
  }
  // After WaitForAll.
  int failed() const { return failed_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t generated_tokens() const { return generated_tokens_; }

 private:
  std::ostream& out_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<std::optional<GenerationResult>> results_;
  size_t next_ = 0;
  int failed_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t generated_tokens_ = 0;
};

// Collects what one prompt generates.
class ResultSink final : public RequestSink {
 public:
  ResultSink(ResultWriter& writer, size_t i, GenerationResult result)
      : writer_(writer), i_(i), result_(std::move(result)) {}

  void OnDelta(OutputDelta delta) override {
    for (const GeneratedToken& token : delta.tokens) result_.tokens.push_back(ToProto(token));
    result_.text += delta.text;
  }
  void OnEnd(RequestEnd end) override {
    result_.status = end.status;
    if (end.status.ok()) result_.finish_reason = ToProto(end, 0).reason();
    writer_.Set(i_, std::move(result_));
  }

 private:
  ResultWriter& writer_;
  size_t i_;
  GenerationResult result_;
};

// Everything of `run` that rank 0 alone does.
class Job {
 public:
  Job(const RunOptions& options, PromptLines lines) : options_(options), lines_(std::move(lines)) {}

  // Before anything slow: can the results be written?
  absl::Status OpenOut() {
    if (options_.out == "-") return absl::OkStatus();
    if (options_.out == options_.logits) {
      return WithExitCode(
          absl::InvalidArgumentError(absl::StrCat("--out and --logits are both ", options_.out)),
          ExitCode::kUsage);
    }
    file_.open(options_.out, std::ios::trunc);
    if (file_.is_open()) return absl::OkStatus();
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrCat("cannot write --out ", options_.out)),
        ExitCode::kUsage);
  }

  absl::Status Prepare(const RankEngine& engine) {
    rules_.tokenizer = engine.tokenizer.get();
    rules_.served_model_names = {options_.engine.model};
    rules_.vocab_size = engine.source.config.model.vocab_size;
    rules_.max_model_len = engine.limits.max_model_len;
    rules_.default_max_tokens = options_.engine.default_max_tokens;
    rules_.defaults = engine.source.config.generation;
    std::vector<LogitsFile::Tensor> tensors;
    for (size_t i = 0; i < lines_.size(); ++i) {
      requests_.push_back(lines_[i].ok() ? BuildRequest(*lines_[i], rules_)
                                         : absl::StatusOr<Request>(lines_[i].status()));
      if (!requests_[i].ok()) continue;
      requests_[i]->request_id = absl::StrCat(i);
      requests_[i]->wants_text = engine.tokenizer != nullptr;
      tensors.push_back(
          {static_cast<int64_t>(i), static_cast<int64_t>(requests_[i]->prompt.size())});
    }
    if (!options_.logits.has_value()) return absl::OkStatus();
    BH_ASSIGN_OR_RETURN(logits_, LogitsFile::Create(*options_.logits, tensors,
                                                    engine.source.config.model.vocab_size));
    for (size_t t = 0; t < tensors.size(); ++t) {
      requests_[tensors[t].index]->prompt_logits = logits_->sink(t);
    }
    return absl::OkStatus();
  }

  // On a thread of its own, beside the rank loop: submits, waits, drains.
  void Feed(Coordinator& coordinator) {
    ResultWriter writer(options_.out == "-" ? std::cout : file_, requests_.size());
    const absl::Time begin = absl::Now();
    for (size_t i = 0; i < requests_.size(); ++i) {
      GenerationResult result;
      result.index = static_cast<int64_t>(i);
      result.status = requests_[i].status();
      if (requests_[i].ok()) {
        Request& request = *requests_[i];
        result.prompt_token_ids.assign(request.prompt.begin(), request.prompt.end());
        result.seed = request.sampling.seed;
        result.wants_logprobs = request.num_logprobs.has_value();
        result.status =
            coordinator.Submit(std::move(request), std::make_shared<ResultSink>(writer, i, result));
      }
      if (!result.status.ok()) writer.Set(i, std::move(result));
    }
    writer.WaitForAll();
    failed_ = writer.failed();
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    BH_LOG(kInfo) << absl::StrFormat(
        "%d prompts in %.2f s: %s prompt and %s generated tokens, %.1f generated tokens/s",
        requests_.size(), seconds, FormatCount(writer.prompt_tokens()),
        FormatCount(writer.generated_tokens()), writer.generated_tokens() / seconds);
    coordinator.BeginDrain(absl::InfiniteDuration());
  }

  absl::Status Outcome() {
    if (options_.out == "-") BH_RETURN_IF_ERROR(FlushStandardOutput());
    file_.close();
    if (options_.out != "-" && file_.fail()) {
      return WithExitCode(
          absl::DataLossError(absl::StrCat("writing --out ", options_.out, " failed")),
          ExitCode::kClientError);
    }
    if (failed_ == 0) return absl::OkStatus();
    return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                            failed_, " of ", requests_.size(), " prompts failed; see their lines")),
                        ExitCode::kClientError);
  }

  size_t size() const { return lines_.size(); }

 private:
  const RunOptions& options_;
  PromptLines lines_;
  std::ofstream file_;
  RequestRules rules_;
  std::vector<absl::StatusOr<Request>> requests_;
  std::unique_ptr<LogitsFile> logits_;
  int failed_ = 0;
};

absl::Status RunOnCoordinator(const RunOptions& options, RankLife& life, RankEngine& engine,
                              Job& job) {
  BH_RETURN_IF_ERROR(RunPhase(life.group().exchange(), "outputs", options.engine.startup_timeout,
                              [&] { return job.Prepare(engine); }));
  SchedulerLimits limits =
      SchedulerLimitsOf(engine, options.engine, static_cast<int>(std::max<size_t>(job.size(), 1)));
  limits.max_num_queued_tokens = std::numeric_limits<int64_t>::max() / 2;
  Coordinator coordinator(CoordinatorOptions(engine, limits));
  coordinator.SetServing();
  life.SetEnding(
      {.fail = [&](const absl::Status& why) { coordinator.Fail(why); }, .flush = nullptr});
  std::thread feeder([&] { job.Feed(coordinator); });
  life.RunSteps(*engine.runner, &coordinator);
  feeder.join();
  life.SetEnding({});
  // The other ranks end well: whatever became of single prompts, the group leaves in good order.
  return MarkAgreed(job.Outcome());
}

absl::Status RunOnGroup(const RunOptions& options, RankLife& life) {
  GroupExchange& exchange = life.group().exchange();
  const absl::Duration timeout = options.engine.startup_timeout;
  std::unique_ptr<Job> job;
  BH_RETURN_IF_ERROR(RunPhase(exchange, "prompts", timeout, [&]() -> absl::Status {
    if (!exchange.topology().coordinator()) return absl::OkStatus();
    BH_ASSIGN_OR_RETURN(PromptLines lines,
                        ReadPrompts(options.prompts, RequestOf(options.request)));
    job = std::make_unique<Job>(options, std::move(lines));
    return job->OpenOut();
  }));
  BH_ASSIGN_OR_RETURN(const std::unique_ptr<RankEngine> engine,
                      StartEngine(options.engine, life.group(), std::nullopt, nullptr));
  life.SetStepLimit(engine->step_timeout);
  if (job != nullptr) {
    LogReport(*engine);
    return RunOnCoordinator(options, life, *engine, *job);
  }
  BH_RETURN_IF_ERROR(RunPhase(exchange, "outputs", timeout, [] { return absl::OkStatus(); }));
  life.RunSteps(*engine->runner, nullptr);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunRun(const RunOptions& options) {
  return LiveAsRank(options.engine, [&](RankLife& life) { return RunOnGroup(options, life); });
}

}  // namespace bulkhead
