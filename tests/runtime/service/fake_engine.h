// An engine controlled by the test: requests arrive, the test decides their outcome.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/engine/request.h"
#include "runtime/service/engine_control.h"

namespace bulkhead {

struct Submitted {
  Request request;
  std::shared_ptr<RequestSink> sink;

  // One delta per token id, from `position` on.
  void Send(uint64_t position, const std::vector<TokenId>& ids, const std::string& text) const;
  void Finish(FinishReason reason, int completion_tokens) const;
  void Fail(absl::Status status) const;
};

inline constexpr int kTestModelLen = 64;
// Its limits at start.
inline SchedulerLimits FakeLimits() {
  SchedulerLimits limits;
  limits.max_num_seqs = 4;
  limits.max_model_len = kTestModelLen;
  limits.max_num_queued_reqs = 7;
  return limits;
}

class FakeEngine final : public RequestInbox, public EngineControl {
 public:
  absl::Status WhyFull() const override;
  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) override;
  // Records it and ends the request with `why`, as a real engine does at its next step.
  void Cancel(absl::string_view request_id, absl::Status why, const RequestSink* of) override;
  v1::LoadInfo Load() override;
  EngineMetrics Metrics() override;
  SchedulerLimits Limits() override;
  absl::StatusOr<SchedulerLimits> SetLimits(const v1::SetLimitsRequest& change,
                                            SchedulerLimits* before) override;
  void BeginDrain(std::optional<absl::Duration> timeout, DrainWaiter ended) override;
  // What the drain was to call, if anything; waits for the drain.
  std::shared_ptr<const DrainEnd> TakeDrainEnd();

  // WhyFull returns this.
  void FillWith(absl::Status status);
  // The next Submit returns this instead.
  void RefuseWith(absl::Status status);
  // Called by Submit at once, on the caller's thread, instead of queueing for Next().
  void AnswerWith(std::function<void(const Submitted&)> answer);
  void SetLoad(const v1::LoadInfo& load);
  void SetMetrics(const EngineMetrics& metrics);

  bool HasNext() const;
  Submitted Next();                                           // waits for a request
  absl::Status WaitForCancel(const std::string& request_id);  // waits; returns the cause
  bool WasCancelled(const std::string& request_id);
  std::optional<absl::Duration> WaitForDrain();

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status full_, refusal_;
  std::function<void(const Submitted&)> answer_;
  v1::LoadInfo load_;
  EngineMetrics metrics_{kTestModelLen};
  SchedulerLimits limits_ = FakeLimits();
  std::deque<Submitted> arrived_;
  std::map<std::string, std::shared_ptr<RequestSink>> running_;
  std::map<std::string, absl::Status> cancelled_;
  bool draining_ = false;
  std::optional<absl::Duration> drain_timeout_;
  DrainWaiter drain_end_;
};

}  // namespace bulkhead
