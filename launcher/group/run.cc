#include "launcher/group/run.h"

#include <atomic>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/group/batch.h"
#include "launcher/group/logits_file.h"
#include "launcher/group/request_rules.h"
#include "launcher/prompts.h"
#include "runtime/service/message_conversion.h"
#include "runtime/service/prompt_logprobs.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {
namespace {

// Counts the outcomes of the prompts, and passes each result on as a line. Thread-safe.
class ResultWriter {
 public:
  explicit ResultWriter(ResultLines& lines) : lines_(lines) {}

  void Set(size_t i, const GenerationResult& result) {
    ++(result.status.ok() ? done_ : failed_);
    if (result.status.ok()) prompt_tokens_ += static_cast<int64_t>(result.prompt_token_ids.size());
    lines_.Set(i, ResultLine(result));
  }
  void CountGenerated(size_t tokens) { generated_tokens_ += static_cast<int64_t>(tokens); }
  // Counts so far; tokens include unfinished answers.
  int done() const { return done_; }
  int failed() const { return failed_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t generated_tokens() const { return generated_tokens_; }

 private:
  ResultLines& lines_;
  std::atomic<int> done_{0};
  std::atomic<int> failed_{0};
  std::atomic<int64_t> prompt_tokens_{0};
  std::atomic<int64_t> generated_tokens_{0};
};

// Collects what one prompt generates.
class ResultSink final : public RequestSink {
 public:
  // `prompt_logprobs` may be null; it outlives the sink.
  ResultSink(ResultWriter& writer, size_t i, GenerationResult result,
             PromptLogprobs* prompt_logprobs)
      : writer_(writer), i_(i), result_(std::move(result)), prompt_logprobs_(prompt_logprobs) {}

  void OnDelta(OutputDelta delta) override {
    writer_.CountGenerated(delta.tokens.size());
    for (const GeneratedToken& token : delta.tokens) result_.tokens.push_back(ToProto(token));
    result_.text += delta.text;
  }
  void OnEnd(RequestEnd end) override {
    result_.status = end.status;
    if (end.status.ok()) {
      result_.finish_reason = ToProto(end, 0).reason();
      TakePromptLogprobs();
    }
    writer_.Set(i_, result_);
  }

 private:
  void TakePromptLogprobs() {
    if (prompt_logprobs_ == nullptr) return;
    v1::PromptLogprobs all;
    for (const std::string& piece : prompt_logprobs_->TakePieces()) {
      BH_CHECK(all.MergeFromString(piece));
    }
    result_.prompt_logprobs.assign(all.tokens().begin(), all.tokens().end());
  }

  ResultWriter& writer_;
  size_t i_;
  GenerationResult result_;
  PromptLogprobs* prompt_logprobs_;
};

absl::StatusOr<Request> RequestAt(const PromptLine& line, const RequestRules& rules,
                                  bool writes_logits) {
  BH_RETURN_IF_ERROR(line.request.status());
  absl::StatusOr<Request> request = BuildRequest(*line.request, rules);
  if (!request.ok()) return AtLine(line.number, request.status());
  if (writes_logits && request->num_prompt_logprobs.has_value()) {
    return AtLine(line.number, absl::InvalidArgumentError(
                                   "prompt_logprobs and --logits exclude each other: both "
                                   "take the prompt's logits; leave one out"));
  }
  return request;
}

class RunJob final : public BatchJob {
 public:
  RunJob(const RunOptions& options, PromptLines lines)
      : options_(options), lines_(std::move(lines)), writer_(results_) {}

  absl::Status Open(const EndRank& end) override {
    const std::string& prompts = options_.prompts;
    const std::string logits = options_.logits.value_or("-");
    BH_RETURN_IF_ERROR(CheckApart("--out", options_.out, "--prompts", prompts));
    BH_RETURN_IF_ERROR(CheckApart("--out", options_.out, "--logits", logits));
    BH_RETURN_IF_ERROR(CheckApart("--logits", logits, "--prompts", prompts));
    if (options_.logits.has_value()) BH_RETURN_IF_ERROR(CheckCanWrite("--logits", logits));
    return results_.Open(options_.out, end);
  }

  absl::Status Prepare(const RankEngine& engine) override {
    BH_RETURN_IF_ERROR(CheckHasLmHead(engine.source));
    const RequestRules rules = RequestRulesOf(engine, options_.engine);
    std::vector<LogitsFile::Tensor> tensors;
    prompt_logprobs_.resize(lines_.size());
    for (size_t i = 0; i < lines_.size(); ++i) {
      requests_.push_back(RequestAt(lines_[i], rules, options_.logits.has_value()));
      if (!requests_[i].ok()) continue;
      requests_[i]->request_id = absl::StrCat(i);
      requests_[i]->wants_text = engine.tokenizer != nullptr;
      if (requests_[i]->num_prompt_logprobs.has_value()) {
        prompt_logprobs_[i] = std::make_unique<PromptLogprobs>(
            requests_[i]->prompt, *requests_[i]->num_prompt_logprobs,
            v1::PromptLogprobs::kTokensFieldNumber);
        requests_[i]->prompt_logits = prompt_logprobs_[i].get();
      }
      tensors.push_back(
          {static_cast<int64_t>(i), static_cast<int64_t>(requests_[i]->prompt.size())});
    }
    if (!options_.logits.has_value()) return absl::OkStatus();
    BH_ASSIGN_OR_RETURN(logits_, LogitsFile::Create(*options_.logits, tensors, rules.vocab_size));
    for (size_t t = 0; t < tensors.size(); ++t) {
      requests_[tensors[t].index]->prompt_logits = logits_->sink(t);
    }
    return absl::OkStatus();
  }

  void Feed(Coordinator& coordinator) override {
    results_.Expect(requests_.size());
    for (size_t i = 0; i < requests_.size(); ++i) {
      GenerationResult result;
      result.index = static_cast<int64_t>(i);
      result.status = requests_[i].status();
      if (requests_[i].ok()) {
        Request& request = *requests_[i];
        result.prompt_token_ids.assign(request.prompt.begin(), request.prompt.end());
        result.seed = request.sampling.seed;
        result.wants_logprobs = request.num_logprobs.has_value();
        result.status = coordinator.Submit(
            std::move(request),
            std::make_shared<ResultSink>(writer_, i, result, prompt_logprobs_[i].get()));
      }
      if (!result.status.ok()) writer_.Set(i, result);
    }
    results_.WaitForAll();
    const DraftTotals drafts = coordinator.Load().scheduler.drafts;
    if (drafts.drafts == 0) return;
    BH_LOG(kInfo) << absl::StrFormat("%s of %s drafted tokens were accepted",
                                     FormatCount(static_cast<int64_t>(drafts.accepted_tokens)),
                                     FormatCount(static_cast<int64_t>(drafts.draft_tokens)));
  }

  std::string Progress(absl::Duration taken) const override {
    return absl::StrFormat(
        "%s: %s prompt and %s generated tokens, %.1f generated tokens/s",
        DoneText(writer_.done(), lines_.size(), "prompt", taken),
        FormatCount(writer_.prompt_tokens()), FormatCount(writer_.generated_tokens()),
        static_cast<double>(writer_.generated_tokens()) / absl::ToDoubleSeconds(taken));
  }

  absl::Status Outcome() override {
    BH_RETURN_IF_ERROR(results_.Close());
    return FailedLines(writer_.failed(), requests_.size(), "prompt");
  }

  size_t size() const override { return lines_.size(); }

 private:
  const RunOptions& options_;
  PromptLines lines_;
  ResultLines results_;
  ResultWriter writer_;
  std::vector<absl::StatusOr<Request>> requests_;
  std::unique_ptr<LogitsFile> logits_;
  std::vector<std::unique_ptr<PromptLogprobs>> prompt_logprobs_;  // by prompt; null: not asked for
};

}  // namespace

absl::Status RunRun(const RunOptions& options) {
  return RunBatch(options.engine, [&]() -> absl::StatusOr<std::unique_ptr<BatchJob>> {
    BH_ASSIGN_OR_RETURN(PromptLines lines,
                        ReadPrompts(options.prompts, RequestOf(options.request)));
    BH_RETURN_IF_ERROR(CheckLines("--prompts", lines));
    return std::make_unique<RunJob>(options, std::move(lines));
  });
}

}  // namespace bulkhead
