#include "tests/runtime/service/fake_engine.h"

#include <utility>

#include "base/status.h"

namespace bulkhead {

void Submitted::Send(uint64_t position, const std::vector<TokenId>& ids,
                     const std::string& text) const {
  OutputDelta delta;
  delta.position = position;
  for (const TokenId id : ids) {
    GeneratedToken token;
    token.id = id;
    delta.tokens.push_back(token);
  }
  delta.text = text;
  sink->OnDelta(std::move(delta));
}

void Submitted::Finish(FinishReason reason, int completion_tokens) const {
  RequestEnd end;
  end.reason = reason;
  end.completion_tokens = completion_tokens;
  end.timings.total_ns = 5;
  sink->OnEnd(std::move(end));
}

void Submitted::Fail(absl::Status status) const {
  RequestEnd end;
  end.status = std::move(status);
  sink->OnEnd(std::move(end));
}

absl::Status FakeEngine::WhyFull() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return full_;
}

void FakeEngine::FillWith(absl::Status status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  full_ = std::move(status);
}

absl::Status FakeEngine::Submit(Request request, std::shared_ptr<RequestSink> sink) {
  std::function<void(const Submitted&)> answer;
  Submitted submitted = {std::move(request), std::move(sink)};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!refusal_.ok()) return std::exchange(refusal_, absl::OkStatus());
    answer = answer_;
    if (!answer) {
      running_[submitted.request.request_id] = submitted.sink;
      arrived_.push_back(submitted);
    }
  }
  changed_.notify_all();
  if (answer) answer(submitted);
  return absl::OkStatus();
}

void FakeEngine::Cancel(absl::string_view request_id, absl::Status why, const RequestSink* of) {
  std::shared_ptr<RequestSink> sink;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancelled_.emplace(request_id, why);
    const auto found = running_.find(std::string(request_id));
    if (found != running_.end() && (of == nullptr || of == found->second.get())) {
      sink = std::move(found->second);
      running_.erase(found);
    }
  }
  changed_.notify_all();
  if (sink == nullptr) return;
  RequestEnd end;
  end.status = std::move(why);
  sink->OnEnd(std::move(end));
}

v1::LoadInfo FakeEngine::Load() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return load_;
}

EngineMetrics FakeEngine::Metrics() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return metrics_;
}

SchedulerLimits FakeEngine::Limits() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return limits_;
}

absl::StatusOr<SchedulerLimits> FakeEngine::SetLimits(const v1::SetLimitsRequest& change,
                                                      SchedulerLimits* before) {
  const std::lock_guard<std::mutex> lock(mutex_);
  *before = limits_;
  BH_ASSIGN_OR_RETURN(limits_, Changed(FakeLimits(), limits_, change));
  return limits_;
}

void FakeEngine::BeginDrain(std::optional<absl::Duration> timeout, DrainWaiter ended) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    draining_ = true;
    drain_timeout_ = timeout;
    drain_end_ = std::move(ended);
  }
  changed_.notify_all();
}

void FakeEngine::RefuseWith(absl::Status status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  refusal_ = std::move(status);
}

void FakeEngine::AnswerWith(std::function<void(const Submitted&)> answer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  answer_ = std::move(answer);
}

void FakeEngine::SetLoad(const v1::LoadInfo& load) {
  const std::lock_guard<std::mutex> lock(mutex_);
  load_ = load;
}

void FakeEngine::SetMetrics(const EngineMetrics& metrics) {
  const std::lock_guard<std::mutex> lock(mutex_);
  metrics_ = metrics;
}

bool FakeEngine::HasNext() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !arrived_.empty();
}

Submitted FakeEngine::Next() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !arrived_.empty(); });
  Submitted out = std::move(arrived_.front());
  arrived_.pop_front();
  return out;
}

absl::Status FakeEngine::WaitForCancel(const std::string& request_id) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return cancelled_.count(request_id) > 0; });
  return cancelled_.at(request_id);
}

bool FakeEngine::WasCancelled(const std::string& request_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return cancelled_.count(request_id) > 0;
}

std::optional<absl::Duration> FakeEngine::WaitForDrain() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return draining_; });
  return drain_timeout_;
}

std::shared_ptr<const DrainEnd> FakeEngine::TakeDrainEnd() {
  WaitForDrain();
  const std::lock_guard<std::mutex> lock(mutex_);
  return drain_end_.lock();
}

}  // namespace bulkhead
