#include "launcher/bench/serve/load_generator.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "launcher/prompts.h"
#include "runtime/engine/refusal.h"

namespace bulkhead {
namespace {

// After this many consecutive requests without a server: it will not come back by itself.
constexpr int kMaxUnavailable = 16;
constexpr double kNsPerS = 1e9;

double SecondsOf(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / kNsPerS;
}

double ThreadCpuSeconds(pthread_t thread) {
  clockid_t clock;
  return pthread_getcpuclockid(thread, &clock) == 0 ? SecondsOf(clock) : 0;
}

}  // namespace

// One request in flight; lives from its start to its status. At most one operation is pending, so
// only its receiver accesses it once it has started.
class LoadGenerator::Call {
 public:
  Call(LoadGenerator* generator, RequestRecord* record) : generator_(generator), record_(record) {}

  void Start(const v1::GenerateRequest& request, Receiver* receiver) {
    if (generator_->timeout_.has_value()) {
      context_.set_deadline(absl::ToChronoTime(absl::Now() + *generator_->timeout_));
    }
    generator_->calls_.Add(&context_);
    reader_ = receiver->stub->PrepareAsyncGenerateStream(&context_, request, &receiver->queue);
    reader_->StartCall(this);
  }

  // The pending operation is done; whether the call is.
  bool Proceed(bool ok) {
    const double now = generator_->Now();
    if (state_ == State::kFinishing) {
      Finish(now);
      return true;
    }
    if (state_ == State::kReading && ok && broken_.empty()) TakeEvent(now);
    if (!broken_.empty()) context_.TryCancel();  // the stream may have no end
    if (ok) {
      state_ = State::kReading;
      reader_->Read(&event_, this);
    } else {
      state_ = State::kFinishing;
      reader_->Finish(&status_, this);
    }
    return false;
  }

  grpc::ClientContext* context() { return &context_; }
  const RequestRecord& record() const { return *record_; }
  bool found_no_server() const { return status_.error_code() == grpc::StatusCode::UNAVAILABLE; }

 private:
  enum class State { kStarting, kReading, kFinishing };

  void TakeEvent(double now) {
    if (event_.has_accepted()) {
      record_->request_id = event_.request_id();
      record_->prompt_tokens = static_cast<int>(event_.accepted().prompt_tokens());
    } else if (event_.has_delta() && event_.delta().tokens_size() > 0) {
      if (event_.delta().position() != received_) {
        broken_ = absl::StrCat("the server continued at position ", event_.delta().position(),
                               " after ", received_, " tokens");
      }
      received_ += event_.delta().tokens_size();
      const auto wanted = static_cast<uint64_t>(record_->requested_tokens);
      if (wanted > 0 && received_ > wanted) {
        broken_ = absl::StrCat("the server sent more than the ", wanted, " tokens asked for");
      }
      record_->arrivals.push_back({now, event_.delta().tokens_size()});
      generator_->tokens_ += event_.delta().tokens_size();
    } else if (event_.has_finished()) {
      TakeFinished(event_.finished());
    }
  }

  void TakeFinished(const v1::Finished& finished) {
    finished_ = true;
    record_->finish_reason = std::string(FinishReasonText(finished.reason()));
    record_->completion_tokens = static_cast<int>(finished.usage().completion_tokens());
    record_->cached_prompt_tokens = static_cast<int>(finished.usage().cached_prompt_tokens());
    if (!finished.has_timings()) return;
    const v1::Timings& timings = finished.timings();
    ServerTimes times;
    times.prepare_s = static_cast<double>(timings.prepare_ns()) / kNsPerS;
    times.queue_s = static_cast<double>(timings.queue_ns()) / kNsPerS;
    if (const uint64_t first_ns = timings.first_token_ns(); first_ns > 0) {
      times.prefill_s = static_cast<double>(first_ns) / kNsPerS - times.prepare_s - times.queue_s;
      times.decode_s = static_cast<double>(timings.total_ns() - first_ns) / kNsPerS;
    }
    times.preemptions = static_cast<int>(timings.preemptions());
    const auto seconds = [](bool known, uint64_t ns) {
      return known ? std::optional<double>(static_cast<double>(ns) / kNsPerS) : std::nullopt;
    };
    times.collective_s = seconds(timings.has_collective_ns(), timings.collective_ns());
    times.sampling_s = seconds(timings.has_sampling_ns(), timings.sampling_ns());
    times.detokenise_s = seconds(timings.has_detokenise_ns(), timings.detokenise_ns());
    record_->server = times;
  }

  void Finish(double now) {
    record_->end_s = now;
    if (status_.ok() && finished_ && broken_.empty()) {
      record_->outcome = RequestOutcome::kCompleted;
      return;
    }
    if (generator_->calls_.cancelled() && status_.error_code() == grpc::StatusCode::CANCELLED) {
      return;  // unfinished, not the server's fault
    }
    record_->outcome = RequestOutcome::kFailed;
    if (status_.ok() || !broken_.empty()) {
      record_->code = "DATA_LOSS";
      record_->message =
          broken_.empty() ? "the server's stream ended without a finish reason" : broken_;
      return;
    }
    const absl::Status status = StatusOf(status_, generator_->target_);
    record_->code = absl::StatusCodeToString(status.code());
    record_->reason = ReasonOf(status);
    record_->message = std::string(status.message());
  }

  LoadGenerator* generator_;
  RequestRecord* record_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateEvent>> reader_;
  v1::GenerateEvent event_;
  grpc::Status status_;
  State state_ = State::kStarting;
  bool finished_ = false;
  uint64_t received_ = 0;  // tokens
  std::string broken_;     // why its stream is not one answer; empty: it is
};

absl::StatusOr<std::unique_ptr<LoadGenerator>> LoadGenerator::Connect(
    const std::string& target, int threads, std::optional<absl::Duration> timeout,
    const ClientCredentials& credentials) {
  std::unique_ptr<LoadGenerator> generator(new LoadGenerator());
  generator->target_ = target;
  generator->timeout_ = timeout;
  for (int i = 0; i < threads; ++i) {
    auto receiver = std::make_unique<Receiver>();
    BH_ASSIGN_OR_RETURN(receiver->channel,
                        bulkhead::Connect(target, credentials, kConnectLimit, i));
    receiver->stub = v1::Generation::NewStub(receiver->channel);
    generator->receivers_.push_back(std::move(receiver));
  }
  for (const auto& receiver : generator->receivers_) {
    receiver->thread =
        std::thread([self = generator.get(), queue = &receiver->queue] { self->Receive(queue); });
  }
  return generator;
}

LoadGenerator::~LoadGenerator() {
  for (const auto& receiver : receivers_) {
    receiver->queue.Shutdown();
    if (receiver->thread.joinable()) receiver->thread.join();
    void* tag = nullptr;
    bool ok = false;
    while (receiver->queue.Next(&tag, &ok)) {
    }
  }
}

double LoadGenerator::Now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void LoadGenerator::Receive(grpc::CompletionQueue* queue) {
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
    Call* call = static_cast<Call*>(tag);
    if (call->Proceed(ok)) OnEnd(call);
  }
}

void LoadGenerator::OnEnd(Call* call) {
  calls_.Remove(call->context());
  const RequestOutcome outcome = call->record().outcome;
  if (outcome == RequestOutcome::kCompleted) ++completed_;
  if (outcome == RequestOutcome::kFailed) ++failed_;
  bool gone = false;
  {
    const absl::MutexLock lock(&mutex_);
    consecutive_unavailable_ = call->found_no_server() ? consecutive_unavailable_ + 1 : 0;
    gone = consecutive_unavailable_ >= kMaxUnavailable && !stopped_;
    if (gone) server_is_gone_ = stopped_ = true;  // before Run sends more, or returns
    free_slots_.push_back(call->record().end_s);
    --outstanding_;
  }
  delete call;
  if (gone) calls_.CancelAll();
}

void LoadGenerator::Stop() {
  {
    const absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  calls_.CancelAll();
}

LoadProgress LoadGenerator::progress() const { return {sent_, completed_, failed_, tokens_}; }

std::optional<double> LoadGenerator::WaitForTurn(const LoadPlan& plan, size_t index,
                                                 double* scheduled_s) {
  const absl::MutexLock lock(&mutex_);
  double due = 0;
  if (!plan.due_s.empty()) {
    due = plan.due_s[index];
    const auto at = begin_ + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::duration<double>(due));
    for (auto left = at - begin_; left.count() > 0 && !stopped_;) {
      left = at - std::chrono::steady_clock::now();
      mutex_.AwaitWithTimeout(absl::Condition(&stopped_), absl::FromChrono(left));
    }
  }
  *scheduled_s = due;
  if (plan.max_concurrency.has_value()) {
    const auto may_go = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopped_ || !free_slots_.empty();
    };
    mutex_.Await(absl::Condition(&may_go));
    if (stopped_) return std::nullopt;
    due = std::max(due, free_slots_.front());
    free_slots_.pop_front();
    if (plan.due_s.empty()) *scheduled_s = due;
  }
  if (stopped_) return std::nullopt;
  ++outstanding_;
  return due;
}

void LoadGenerator::SendAll(const LoadPlan& plan, std::vector<RequestRecord>* records) {
  for (size_t i = 0; i < records->size(); ++i) {
    RequestRecord& record = (*records)[i];
    const std::optional<double> due = WaitForTurn(plan, i, &record.scheduled_s);
    if (!due.has_value()) {
      for (size_t k = i; k < records->size() && !plan.due_s.empty(); ++k) {
        (*records)[k].scheduled_s = plan.due_s[k];
      }
      return;
    }
    record.sent_s = Now();
    record.lag_s = *record.sent_s - *due;
    ++sent_;
    auto* call = new Call(this, &record);  // deleted by OnEnd
    call->Start((*plan.requests)[i], receivers_[i % receivers_.size()].get());
  }
}

std::vector<double> LoadGenerator::ThreadSeconds(pthread_t sender) const {
  std::vector<double> seconds = {ThreadCpuSeconds(sender)};
  for (const auto& receiver : receivers_) {
    seconds.push_back(ThreadCpuSeconds(receiver->thread.native_handle()));
  }
  return seconds;
}

RunRecord LoadGenerator::Run(const LoadPlan& plan) {
  RunRecord run;
  run.requests.resize(plan.requests->size());
  for (size_t i = 0; i < run.requests.size(); ++i) {
    run.requests[i].run = plan.run;
    run.requests[i].index = static_cast<int>(i);
    run.requests[i].requested_tokens =
        static_cast<int>((*plan.requests)[i].stopping().max_tokens());
  }
  sent_ = completed_ = failed_ = 0;
  tokens_ = 0;
  const std::vector<double> cpu_before = ThreadSeconds(pthread_self());
  begin_ = std::chrono::steady_clock::now();
  {
    const absl::MutexLock lock(&mutex_);
    free_slots_.assign(plan.max_concurrency.value_or(0), 0.0);
  }
  SendAll(plan, &run.requests);
  {
    const auto all_ended = [this]()
                               ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return outstanding_ == 0; };
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&all_ended));
  }
  for (const RequestRecord& request : run.requests) {
    run.duration_s = std::max(run.duration_s, request.end_s);
  }
  const double wall = Now();
  const std::vector<double> cpu = ThreadSeconds(pthread_self());
  busiest_thread_share_ = 0;
  for (size_t i = 0; i < cpu.size(); ++i) {
    busiest_thread_share_ = std::max(busiest_thread_share_, (cpu[i] - cpu_before[i]) / wall);
  }
  return run;
}

}  // namespace bulkhead
