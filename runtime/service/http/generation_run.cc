#include "runtime/service/http/generation_run.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/generate_call.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/message_request.h"
#include "runtime/service/open_calls.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

// A refusal of prompt `index` of `count`, with the name that the body has for it.
absl::Status InPrompt(const GenerationJob& job, size_t index, size_t count,
                      const absl::Status& status) {
  std::string name(job.prompt_field);
  if (count > 1) absl::StrAppend(&name, "[", index, "]");
  return WithFieldsRenamed(status, {{"prompt.text", name}, {"prompt.token_ids", name}});
}

class GenerationRun final : public std::enable_shared_from_this<GenerationRun> {
 public:
  GenerationRun(const HttpContext& context, GenerationJob job, ExchangePointer exchange)
      : context_(context), job_(std::move(job)), exchange_(std::move(exchange)) {}

  void Start(const RequestOrigin& origin);

 private:
  // The transport of one call; forwards everything to the front end's thread.
  class Choice final : public CallTransport {
   public:
    Choice(GenerationRun* run, int index) : run_(run), index_(index) {}

    void Write(MessagePieces message) override {
      auto bytes = std::make_shared<const std::string>(Joined(std::move(message)));
      run_->exchange_->Post(
          [run = run_->shared_from_this(), index = index_, bytes] { run->OnEvent(index, bytes); });
    }
    void SetTrailer(const std::string& /*key*/, const std::string& /*value*/) override {}
    void End(const absl::Status& status, std::optional<MessagePieces> last) override {
      auto bytes = std::make_shared<const std::string>(last.has_value() ? Joined(*std::move(last))
                                                                        : std::string());
      run_->exchange_->Post([run = run_->shared_from_this(), index = index_, status, bytes] {
        run->OnEnd(index, status, bytes);
      });
    }
    // A choice that has ended waits for the others, not for its client.
    std::function<bool()> Dropper() override {
      return [run = run_->weak_from_this(), drop = run_->exchange_->Dropper()] {
        const auto held = run.lock();
        return held != nullptr && held->is_over_ && drop();
      };
    }

    std::shared_ptr<Call> call;
    bool has_ended = false;
    std::shared_ptr<const std::string> held;      // its first event, until all choices have one
    std::shared_ptr<const std::string> response;  // for a whole answer
    UsageCounts usage;

   private:
    GenerationRun* const run_;
    const int index_;
  };

  v1::GenerateRequest RequestOf(int choice) const;

  // The rest runs on the front end's thread.
  void OnEvent(int index, const std::shared_ptr<const std::string>& bytes);
  void OnDelta(int index, const PackedMessage& delta);
  void OnEnd(int index, const absl::Status& status,
             const std::shared_ptr<const std::string>& bytes);
  void OnFinished(int index, const v1::Finished& finished);
  void Fail(const absl::Status& why);
  void OnGone();
  void CancelOthers();
  void BeginEvents();
  // An error known before all choices are accepted is the answer, not an event: the first event of
  // each choice is held until then.
  void Hold(int index, const std::shared_ptr<const std::string>& bytes);
  void DropHeld();
  // Every call has ended ok.
  void Complete();
  // The answer has reached the client, or never will.
  void OnAnswered();
  void CloseIfOver();
  UsageCounts TotalUsage() const;

  const HttpContext& context_;
  GenerationJob job_;
  const ExchangePointer exchange_;
  std::vector<std::unique_ptr<Choice>> choices_;
  std::shared_ptr<GenerationRun> self_;  // until every call is closed
  int num_ended_ = 0;
  bool has_begun_ = false;             // events are sent
  std::atomic<bool> is_over_ = false;  // further output of calls is not sent
  bool is_answered_ = false;
};

v1::GenerateRequest GenerationRun::RequestOf(int choice) const {
  const int n = job_.options.n;
  v1::GenerateRequest request = job_.prompts[choice / n];
  request.set_request_id(job_.num_choices() == 1 ? job_.id : ChoiceId(job_.id, choice));
  if (request.sampling().has_seed()) {
    request.mutable_sampling()->set_seed(request.sampling().seed() +
                                         static_cast<uint64_t>(choice % n));
  }
  return request;
}

void GenerationRun::Start(const RequestOrigin& origin) {
  self_ = shared_from_this();
  ServiceCore* const core = context_.core;
  const int num = job_.num_choices();
  for (int i = 0; i < num; ++i) {
    auto choice = std::make_unique<Choice>(this, i);
    if (job_.options.stream) {
      choice->call = std::make_shared<GenerateStream>(core, choice.get());
    } else {
      choice->call = std::make_shared<GenerateUnary>(core, choice.get());
    }
    choices_.push_back(std::move(choice));
  }
  const auto run = shared_from_this();
  exchange_->Post([run] { run->exchange_->WhenGone([run] { run->OnGone(); }); });
  for (int i = 0; i < num; ++i) {
    choices_[i]->call->Start(std::make_unique<MessageRequest>(RequestOf(i), origin));
  }
  job_.prompts = {};
  job_.claim.GiveBack();
}

void GenerationRun::BeginEvents() {
  if (std::exchange(has_begun_, true)) return;
  exchange_->BeginEvents();
  exchange_->Send(job_.format->Opening(), [](bool) {});
}

void GenerationRun::OnEvent(int index, const std::shared_ptr<const std::string>& bytes) {
  Choice& choice = *choices_[index];
  if (is_over_) return choice.call->OnWritten(false);
  if (!has_begun_) return Hold(index, bytes);
  const absl::string_view accepted = BytesOf(*bytes, v1::GenerateEvent::kAcceptedFieldNumber);
  if (!accepted.empty()) {
    v1::Accepted message;
    message.ParseFromArray(accepted.data(), static_cast<int>(accepted.size()));
    choice.usage.prompt_tokens = message.prompt_tokens();
    BodyParts parts;
    if (job_.options.echo || job_.options.token_ids) {
      const absl::string_view ids = BytesOf(accepted, v1::Accepted::kPromptTokenIdsFieldNumber);
      parts = job_.format->Prompt(index, {bytes, BytesOf(ids, v1::TokenIds::kIdsFieldNumber)},
                                  choice.usage);
    }
    return exchange_->Send(std::move(parts), [run = shared_from_this(), &choice](bool ok) {
      choice.call->OnWritten(ok);
    });
  }
  const absl::string_view prompt = BytesOf(*bytes, v1::GenerateEvent::kPromptLogprobsFieldNumber);
  if (!prompt.empty()) {
    return exchange_->Send(
        job_.format->PromptLogprobs(index, {bytes, prompt}, choice.usage),
        [run = shared_from_this(), &choice](bool ok) { choice.call->OnWritten(ok); });
  }
  OnDelta(index, {bytes, BytesOf(*bytes, v1::GenerateEvent::kDeltaFieldNumber)});
}

void GenerationRun::Hold(int index, const std::shared_ptr<const std::string>& bytes) {
  choices_[index]->held = bytes;
  for (const auto& choice : choices_) {
    if (choice->held == nullptr) return;
  }
  BeginEvents();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const auto held = std::exchange(choices_[i]->held, nullptr);
    if (held != nullptr) OnEvent(static_cast<int>(i), held);
  }
}

void GenerationRun::DropHeld() {
  for (const auto& choice : choices_) {
    if (std::exchange(choice->held, nullptr) != nullptr) choice->call->OnWritten(false);
  }
}

void GenerationRun::OnDelta(int index, const PackedMessage& delta) {
  Choice& choice = *choices_[index];
  choice.usage.completion_tokens +=
      static_cast<uint64_t>(CountOf(delta.bytes, v1::Delta::kTokensFieldNumber));
  absl::StatusOr<BodyParts> events = job_.format->Delta(index, delta, choice.usage);
  if (!events.ok()) {
    Fail(events.status());
    return choice.call->OnWritten(false);
  }
  exchange_->Send(*std::move(events),
                  [run = shared_from_this(), &choice](bool ok) { choice.call->OnWritten(ok); });
}

void GenerationRun::OnEnd(int index, const absl::Status& status,
                          const std::shared_ptr<const std::string>& bytes) {
  Choice& choice = *choices_[index];
  choice.has_ended = true;
  ++num_ended_;
  if (!is_over_ && !status.ok()) {
    const auto n = static_cast<size_t>(job_.options.n);
    Fail(InPrompt(job_, static_cast<size_t>(index) / n, choices_.size() / n, status));
  }
  if (!is_over_) {
    const bool stream = job_.options.stream;
    v1::Finished finished;
    finished.ParseFromString(std::string(
        BytesOf(*bytes, stream ? static_cast<int>(v1::GenerateEvent::kFinishedFieldNumber)
                               : static_cast<int>(v1::GenerateResponse::kFinishedFieldNumber))));
    choice.usage = {finished.usage().prompt_tokens(), finished.usage().completion_tokens(),
                    finished.usage().cached_prompt_tokens()};
    if (stream) {
      OnFinished(index, finished);
    } else {
      choice.response = bytes;
    }
    if (num_ended_ == static_cast<int>(choices_.size())) Complete();
  }
  CloseIfOver();
}

void GenerationRun::OnFinished(int index, const v1::Finished& finished) {
  BeginEvents();
  exchange_->Send(job_.format->Finished(index, finished, choices_[index]->usage), [](bool) {});
}

void GenerationRun::Complete() {
  is_over_ = true;
  const UsageCounts usage = TotalUsage();
  const auto answered = [run = shared_from_this()](bool) { run->OnAnswered(); };
  if (job_.options.stream) {
    if (job_.options.include_usage) exchange_->Send(job_.format->Usage(usage), [](bool) {});
    exchange_->Send(job_.format->Closing(), [](bool) {});
    return exchange_->Finish(answered);
  }
  std::vector<PackedMessage> responses;
  for (const auto& choice : choices_) {
    responses.push_back({choice->response, *choice->response});
    choice->response = nullptr;
  }
  HttpAnswer answer;
  answer.body = job_.format->Whole(responses, usage);
  exchange_->Answer(std::move(answer), answered);
}

void GenerationRun::Fail(const absl::Status& why) {
  const absl::Status status = InFormField(why, job_.options.form_field);
  is_over_ = true;
  const auto answered = [run = shared_from_this()](bool) { run->OnAnswered(); };
  if (has_begun_) {
    exchange_->Send(job_.format->Failure(status), [](bool) {});
    exchange_->Finish(answered);
  } else {
    exchange_->Answer(ErrorAnswer(status), answered);
  }
  DropHeld();
  CancelOthers();
}

void GenerationRun::OnGone() {
  is_over_ = true;
  is_answered_ = true;
  DropHeld();
  CancelOthers();
  CloseIfOver();
}

void GenerationRun::CancelOthers() {
  for (const auto& choice : choices_) {
    if (!choice->has_ended) choice->call->OnCancelled(/*deadline_passed=*/false);
  }
}

void GenerationRun::OnAnswered() {
  is_answered_ = true;
  CloseIfOver();
}

void GenerationRun::CloseIfOver() {
  if (!is_answered_ || num_ended_ < static_cast<int>(choices_.size()) || self_ == nullptr) return;
  const auto self = std::exchange(self_, nullptr);
  for (const auto& choice : choices_) choice->call->OnClosed();
  context_.core->host.open_calls.Sub(static_cast<int64_t>(choices_.size()));
}

UsageCounts GenerationRun::TotalUsage() const {
  UsageCounts total;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const UsageCounts& usage = choices_[i]->usage;
    total.completion_tokens += usage.completion_tokens;
    if (i % static_cast<size_t>(job_.options.n) != 0) continue;  // one prompt, n choices
    total.prompt_tokens += usage.prompt_tokens;
    total.cached_tokens += usage.cached_tokens;
  }
  return total;
}

size_t SharedTextBytes(const GenerationJob& job) {
  size_t bytes = 0;
  if (job.options.n == 1) return bytes;
  for (const v1::GenerateRequest& request : job.prompts) bytes += request.text().size();
  return bytes;
}

// Bytes that each choice encodes, with and without a space before them.
size_t BadWordBytes(const GenerationJob& job) {
  size_t bytes = 0;
  for (const v1::GenerateRequest& request : job.prompts) {
    for (const std::string& word : request.sampling().bad_words()) bytes += 2 * word.size();
  }
  return bytes * static_cast<size_t>(job.options.n);
}

// Replaces a text that n choices share by its tokens.
absl::Status EncodeOnce(const HttpContext& context, GenerationJob* job) {
  if (SharedTextBytes(*job) == 0) return absl::OkStatus();
  BH_ASSIGN_OR_RETURN(const auto parts, context.core->state.ForNewRequest());
  const RequestRules rules = RulesNow(*parts);
  for (size_t i = 0; i < job->prompts.size(); ++i) {
    v1::GenerateRequest& request = job->prompts[i];
    if (!request.has_text()) continue;
    const auto ids = BuildPrompt(request, rules, Generates(request) ? 1 : 0);
    if (!ids.ok()) return InPrompt(*job, i, job->prompts.size(), ids.status());
    request.mutable_token_ids()->mutable_ids()->Add(ids->begin(), ids->end());
    request.clear_add_special_tokens();
    request.clear_truncate_prompt_tokens();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckChoices(const SchedulerLimits& limits, const GenerationJob& job) {
  const int64_t most = int64_t{limits.max_num_seqs} + limits.max_num_queued_reqs;
  if (job.num_choices() <= most) return absl::OkStatus();
  return InvalidField(
      job.options.n > 1 ? "n" : job.prompt_field,
      absl::StrCat(job.num_choices(), " answers are more than may run (max_num_seqs ",
                   limits.max_num_seqs, ") and wait (max_num_queued_reqs ",
                   limits.max_num_queued_reqs, "); ask for fewer at once"),
      reason::kInvalidValue,
      {{"value", absl::StrCat(job.num_choices())}, {"limit", absl::StrCat(most)}});
}

void RunGeneration(const HttpContext& context, GenerationJob job, const ExchangePointer& exchange,
                   const RequestOrigin& origin) {
  const size_t bytes = SharedTextBytes(job) + (job.num_choices() > 1 ? BadWordBytes(job) : 0);
  absl::Status status = context.core->WhyFull();
  if (status.ok() && !origin.on_text_worker && bytes > TextWorker::kLongTextBytes) {
    const auto taken = std::make_shared<GenerationJob>(std::move(job));
    status = context.core->text_worker.Post(bytes, [&context, taken, exchange, origin] {
      RunGeneration(context, std::move(*taken), exchange,
                    {origin.arrived_ns, /*on_text_worker=*/true});
    });
    if (status.ok()) return;
  } else if (status.ok()) {
    status = EncodeOnce(context, &job);
    if (status.ok()) status = context.core->TakeCalls(job.num_choices());
  }
  if (!status.ok()) {
    return exchange->Post([&context, exchange, status] { AnswerError(context, exchange, status); });
  }
  std::make_shared<GenerationRun>(context, std::move(job), exchange)->Start(origin);
}

}  // namespace bulkhead
