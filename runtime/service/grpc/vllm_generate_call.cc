#include "runtime/service/grpc/vllm_generate_call.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "runtime/service/generate_call.h"
#include "runtime/service/message_request.h"
#include "runtime/service/packed_reader.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

// The transport of one call. Its call writes one message at a time, so that `counts` and `ids` are
// used by one thread at a time.
class VllmGenerateCall::Choice final : public CallTransport {
 public:
  Choice(VllmGenerateCall* run, int index, bool stream) : run_(run), stream_(stream) {
    counts_.index = static_cast<uint32_t>(index);
    if (stream) {
      call_ = std::make_shared<GenerateStream>(run->core_, this);
    } else {
      call_ = std::make_shared<GenerateUnary>(run->core_, this);
    }
  }

  // The call ends, and any choice writes, only after the first of these has returned.
  void OnAccepted() override {
    std::call_once(run_->accepted_, [this] { run_->transport_->OnAccepted(); });
  }
  void Write(MessagePieces message) override;
  void SetTrailer(const std::string& key, const std::string& value) override {
    if (run_->choices_.size() == 1) run_->transport_->SetTrailer(key, value);
  }
  void End(const absl::Status& status, std::optional<MessagePieces> last) override;
  std::function<bool()> Dropper() override { return run_->transport_->Dropper(); }

  Call& call() { return *call_; }
  bool is_started() const { return is_started_; }
  void SetStarted() { is_started_ = true; }
  // Its last message is written, or its call is over.
  void Close() {
    if (!is_started_ || std::exchange(is_closed_, true)) return;
    call_->OnClosed();
    hold_.ShrinkTo(0);
  }

 private:
  absl::Status OnAcceptedEvent(absl::string_view accepted);

  VllmGenerateCall* const run_;
  const bool stream_;
  std::shared_ptr<Call> call_;
  VllmCounts counts_;
  PackedBytes ids_;                      // ids of the chunks, for the last message
  AnswerBudget::Hold hold_;              // covers ids_
  std::atomic<bool> is_started_{false};  // its Start has returned
  bool is_closed_ = false;
};

// The last message repeats all ids: they are reserved before the first is sent.
absl::Status VllmGenerateCall::Choice::OnAcceptedEvent(absl::string_view accepted) {
  v1::Accepted message;
  BH_CHECK(message.ParseFromArray(accepted.data(), static_cast<int>(accepted.size())));
  counts_.prompt_tokens = message.prompt_tokens();
  BH_ASSIGN_OR_RETURN(const std::shared_ptr<const ServingParts> parts,
                      run_->core_->state.ForControl(v1::GetModelInfoRequest()));
  BH_ASSIGN_OR_RETURN(hold_, run_->core_->answers.Admit(
                                 MaxTokenIdsBytes(parts->rules.vocab_size, message.max_tokens())));
  return absl::OkStatus();
}

void VllmGenerateCall::Choice::Write(MessagePieces message) {
  const auto run = run_->shared_from_this();
  const std::string event = Joined(std::move(message));
  const absl::string_view accepted = BytesOf(event, v1::GenerateEvent::kAcceptedFieldNumber);
  if (!accepted.empty()) {
    const absl::Status reserved = OnAcceptedEvent(accepted);
    if (!reserved.ok()) {
      run->core_->errors.Add(reserved);
      {
        const absl::MutexLock lock(&run->mutex_);
        run->FailLocked(reserved);
      }
      run->CancelChoices(/*deadline_passed=*/false);
    }
    return call_->OnWritten(reserved.ok());
  }
  const absl::string_view delta = BytesOf(event, v1::GenerateEvent::kDeltaFieldNumber);
  run->Enqueue({this, {PackChunk(delta, counts_, ids_)}});
}

void VllmGenerateCall::Choice::End(const absl::Status& status, std::optional<MessagePieces> last) {
  const auto run = run_->shared_from_this();
  std::optional<MessagePieces> complete;
  if (status.ok()) {
    BH_CHECK(last.has_value());
    const std::string message = Joined(*std::move(last));
    if (stream_) {
      const absl::string_view bytes = BytesOf(message, v1::GenerateEvent::kFinishedFieldNumber);
      v1::Finished finished;
      BH_CHECK(finished.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
      complete = PackComplete(finished, counts_.index, ids_);
    } else {
      complete = PackComplete(message, counts_.index);
    }
  }
  run->OnEnd(this, status, std::move(complete));
}

VllmGenerateCall::VllmGenerateCall(ServiceCore* core, CallTransport* transport)
    : core_(core), transport_(transport) {}

VllmGenerateCall::~VllmGenerateCall() = default;

void VllmGenerateCall::Start(std::unique_ptr<CallRequest> request) {
  const size_t bytes = request->bytes();
  absl::Status refused = core_->WhyRefused(bytes);
  if (!refused.ok()) {
    request = nullptr;
    return Refuse(refused);
  }
  if (bytes <= TextWorker::kLongMessageBytes) return Begin(*request, request->origin());
  refused = core_->text_worker.Post(
      bytes, [self = shared_from_this(), taken = std::shared_ptr<CallRequest>(std::move(request))] {
        self->Begin(*taken, {taken->origin().arrived_ns, /*on_text_worker=*/true});
      });
  if (!refused.ok()) Refuse(refused);
}

void VllmGenerateCall::Refuse(const absl::Status& why) {
  core_->errors.Add(why);
  {
    const absl::MutexLock lock(&mutex_);
    is_over_ = true;
  }
  core_->answers.unread().Add(this, 0, transport_->Dropper());
  transport_->End(why, std::nullopt);
}

void VllmGenerateCall::Begin(CallRequest& request, const RequestOrigin& origin) {
  std::optional<VllmGeneration> generation;
  const absl::Status made = MakeChoices(request, generation);
  if (!made.ok()) return Refuse(made);
  StartChoices(*std::move(generation), origin);
}

absl::Status VllmGenerateCall::MakeChoices(CallRequest& request,
                                           std::optional<VllmGeneration>& generation) {
  {
    const absl::MutexLock lock(&mutex_);
    if (cancelled_.has_value()) return ClientGone(*cancelled_);
  }
  {
    vllm_api::GenerateRequest message;
    BH_RETURN_IF_ERROR(request.Parse(message));
    BH_ASSIGN_OR_RETURN(const std::shared_ptr<const ServingParts> parts,
                        core_->state.ForNewRequest());
    BH_ASSIGN_OR_RETURN(generation,
                        TakeGeneration(message, parts->control->Limits().max_model_len));
  }
  const int n = generation->n;
  BH_RETURN_IF_ERROR(core_->TakeCalls(n - 1));
  extra_calls_ = n - 1;
  const absl::MutexLock lock(&mutex_);
  for (int i = 0; i < n; ++i) {
    choices_.push_back(std::make_unique<Choice>(this, i, generation->stream));
  }
  num_open_ = n;
  has_begun_ = true;
  is_starting_ = true;
  return absl::OkStatus();
}

// One copy of the request at a time: a long one is parsed in the text worker, and the engine has it
// when Start returns.
void VllmGenerateCall::StartChoices(VllmGeneration generation, const RequestOrigin& origin) {
  const auto self = shared_from_this();
  const std::string id = generation.request.request_id().empty() && generation.n > 1
                             ? core_->NewRequestId()
                             : generation.request.request_id();
  const bool has_seed = generation.request.sampling().has_seed();
  const uint64_t seed = generation.request.sampling().seed();
  const auto n = static_cast<int>(choices_.size());
  for (int i = 0; i < n; ++i) {
    {
      const absl::MutexLock lock(&mutex_);
      if (cancelled_.has_value()) FailLocked(ClientGone(*cancelled_));
      if (failure_.has_value()) {
        num_open_ -= n - i;
        break;
      }
    }
    v1::GenerateRequest request = i + 1 < n ? generation.request : std::move(generation.request);
    if (n > 1) request.set_request_id(ChoiceId(id, i));
    if (has_seed) request.mutable_sampling()->set_seed(seed + static_cast<uint64_t>(i));
    Choice& choice = *choices_[i];
    choice.call().Start(std::make_unique<MessageRequest>(std::move(request), origin));
    bool stops = false, deadline_passed = false;
    {
      const absl::MutexLock lock(&mutex_);
      choice.SetStarted();
      stops = failure_.has_value() || cancelled_.has_value();
      deadline_passed = cancelled_.value_or(false);
    }
    if (stops) choice.call().OnCancelled(deadline_passed);
  }
  {
    const absl::MutexLock lock(&mutex_);
    is_starting_ = false;
  }
  Proceed();
}

void VllmGenerateCall::FailLocked(const absl::Status& why) {
  if (!failure_.has_value()) failure_ = why;
}

void VllmGenerateCall::Enqueue(Item item) {
  {
    const absl::MutexLock lock(&mutex_);
    queue_.push_back(std::move(item));
  }
  Proceed();
}

void VllmGenerateCall::OnEnd(Choice* choice, const absl::Status& status,
                             std::optional<MessagePieces> last) {
  bool fails = false;
  {
    const absl::MutexLock lock(&mutex_);
    --num_open_;
    if (status.ok()) {
      queue_.push_back({choice, *std::move(last), /*is_last=*/true});
    } else {
      fails = !failure_.has_value();
      FailLocked(status);
    }
  }
  if (fails) CancelChoices(/*deadline_passed=*/false);
  Proceed();
}

void VllmGenerateCall::CancelChoices(bool deadline_passed) {
  std::vector<Choice*> started;
  {
    const absl::MutexLock lock(&mutex_);
    if (!has_begun_) return;
    for (const auto& choice : choices_) {
      if (choice->is_started()) started.push_back(choice.get());
    }
  }
  for (Choice* choice : started) choice->call().OnCancelled(deadline_passed);
}

std::vector<VllmGenerateCall::Choice*> VllmGenerateCall::DropQueueLocked() {
  std::vector<Choice*> waiting;
  for (const Item& item : queue_) {
    if (!item.is_last) waiting.push_back(item.choice);
  }
  queue_.clear();
  return waiting;
}

void VllmGenerateCall::Proceed() {
  std::vector<Choice*> dropped;
  std::optional<MessagePieces> message;
  std::optional<absl::Status> end;
  {
    const absl::MutexLock lock(&mutex_);
    if (is_over_) return;
    if (failure_.has_value()) dropped = DropQueueLocked();
    if (!writing_.has_value()) {
      if (!queue_.empty()) {
        Item item = std::move(queue_.front());
        queue_.pop_front();
        message = std::move(item.message);
        writing_ = Item{item.choice, {}, item.is_last};
      }
      if (num_open_ == 0 && queue_.empty() && !is_starting_) {
        end = failure_.value_or(absl::OkStatus());
        is_over_ = true;
      }
    }
  }
  // After the transport's End the call may be over.
  const auto self = shared_from_this();
  for (Choice* choice : dropped) choice->call().OnWritten(false);
  if (end.has_value()) return transport_->End(*end, std::move(message));
  if (message.has_value()) transport_->Write(*std::move(message));
}

void VllmGenerateCall::OnWritten(bool ok) {
  std::optional<Item> written;
  {
    const absl::MutexLock lock(&mutex_);
    written = std::exchange(writing_, std::nullopt);
    if (!ok) FailLocked(ClientGone());
  }
  BH_CHECK(written.has_value());
  const auto self = shared_from_this();
  if (written->is_last) {
    written->choice->Close();
  } else {
    written->choice->call().OnWritten(ok);
  }
  if (!ok) CancelChoices(/*deadline_passed=*/false);
  Proceed();
}

void VllmGenerateCall::OnCancelled(bool deadline_passed) {
  {
    const absl::MutexLock lock(&mutex_);
    cancelled_ = deadline_passed;
  }
  CancelChoices(deadline_passed);
}

void VllmGenerateCall::OnClosed() {
  core_->answers.unread().Remove(this);
  for (const auto& choice : choices_) choice->Close();
  core_->host.open_calls.Sub(extra_calls_);
  core_->pressure.CallEnded();
}

}  // namespace bulkhead
