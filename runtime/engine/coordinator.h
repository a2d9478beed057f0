// Coordinator: rank 0's engine. Requests arrive from any thread through its inbox; the rank loop
// asks it for steps and returns their results; deltas and ends go to the requests' sinks.
//
// One mutex guards the inbox and the table of live requests; it is never held while a sink is
// called. The scheduler, the block pool and, once a request is taken from the inbox, its text
// stream belong to the rank loop's thread only; Submit opens a resumed request's stream. Fail() may
// be called by the watchdog's thread while that thread hangs in a collective: it ends every request
// whose sink is not being called at that moment; the rank loop's thread ends the others.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "memory/kv_block_pool.h"
#include "runtime/engine/engine_metrics.h"
#include "runtime/engine/group_state.h"
#include "runtime/engine/load_meter.h"
#include "runtime/engine/request.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/scheduler_limits.h"
#include "runtime/engine/step_runner.h"
#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {

struct CoordinatorLoad {
  GroupState state = GroupState::kStarting;
  SchedulerLoad scheduler;    // after the last step; waiting ones include the inbox
  int64_t num_kv_blocks = 0;  // usable by sequences
  SchedulerLimits limits;
  // Requests that have ended, by number of tokens (prompt and generated): bucket i counts [2^i,
  // 2^(i+1)).
  std::array<uint64_t, 32> length_counts = {};
  int64_t longest_tokens = 0;
};

class Coordinator final : public RequestInbox {
 public:
  struct Options {
    SchedulerLimits limits;  // validated
    StepTarget step_target = {};
    std::vector<TokenId> eos_ids;
    const Tokenizer* tokenizer = nullptr;  // null: token ids only; outlives the coordinator
    std::function<uint64_t()> now_ns;      // monotonic, thread-safe; null: the steady clock
    // Totals since the start, except text_ns; called by the rank loop's thread. Null: unknown.
    std::function<StepCosts()> costs;
    absl::Duration log_period = absl::Seconds(10);
    // Number of answers not yet sent to their clients, after waiting at most `timeout` for them.
    // Null: there are no readers.
    std::function<size_t(absl::Duration timeout)> unsent_answers;
    bool log_requests = false;  // a line for each request that ends
    // Events of the prefix cache (limits.prefix_caching); null: not recorded.
    std::shared_ptr<KvEventLog> kv_events;
  };
  explicit Coordinator(Options options);
  // After the rank loop has returned. Unfinished requests end with UNAVAILABLE.
  ~Coordinator() override;

  // RequestInbox: any thread. Submit takes time proportional to the request's emitted tokens.
  absl::Status WhyFull() const override;
  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) override;
  void Cancel(absl::string_view request_id, absl::Status why, const RequestSink* sink) override;

  // Any thread. INVALID_ARGUMENT above the sealed limits. `before`, which may be null, receives the
  // previous limits.
  absl::StatusOr<SchedulerLimits> SetLimits(const v1::SetLimitsRequest& change,
                                            SchedulerLimits* before);
  void SetServing();  // until then requests are refused; no effect after a drain or a loss
  // Refuses new requests and finishes accepted ones, including queued ones; those left after
  // `timeout` end with UNAVAILABLE at the next step. Answers have the same time to be sent. Then
  // NextStep returns a stop. A second call can only shorten the time. `ended`, if not expired, is
  // called when all have ended, by the rank loop's thread or at once; never if the group is lost.
  void BeginDrain(absl::Duration timeout, DrainWaiter ended = {});
  // Ends every request with `why` and refuses new ones. Only the first call has an effect.
  void Fail(const absl::Status& why);
  CoordinatorLoad Load() const;
  EngineMetrics Metrics() const;
  GroupState state() const;
  SchedulerLimits limits() const;

  // On the rank loop's thread. Fewer than limits.depth steps may be uncommitted when NextStep is
  // called. Blocks while there is nothing to run and nothing in flight. Requests whose time limit
  // has passed end before the step is planned. A step with plan.collect() requires a Commit first,
  // one with plan.stop() ends the loop; after Fail() returns its status.
  absl::StatusOr<Step> NextStep();
  // The result of the oldest uncommitted step: delivers deltas and ends. A no-op after Fail().
  void Commit(StepResult result);

 private:
  struct Live;      // a request as seen by other threads
  struct Active;    // a request's text; once it is started: the rank loop's thread only
  struct EndCause;  // why a request ends
  struct Delivery;
  struct Arrivals;

  absl::Status WhyFullLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(const Live& live) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountLength(const Live& live) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  RequestEnd MakeEnd(Live& live, EndCause cause, uint64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // --log-requests. Without the lock.
  void LogEnd(const Live& live, const RequestEnd& end) const;

  // The rank loop's thread.
  absl::StatusOr<Arrivals> TakeArrivals();
  void StartArrivals(Arrivals arrivals);
  std::optional<Delivery> Start(const std::shared_ptr<Live>& live);
  void DeliverEmissions(std::vector<Emission> emissions);
  std::vector<Delivery> DeliveriesOf(std::vector<Emission> emissions);
  void AddTo(Delivery& delivery, Emission emission);
  Delivery EndOf(const std::shared_ptr<Live>& live, absl::Status why);
  void EndOverdue();
  void Drop(SequenceId id);
  void Deliver(std::vector<Delivery> deliveries);
  void WaitForAnswers();
  bool DrainIsOver();
  void EndDrain();
  void EndAll(const absl::Status& why, const char* word);
  void RecordAdmitted();
  void RecordStep();
  StepCosts Costs() const;  // since the start
  void Publish();

  const Options options_;
  mutable absl::Mutex mutex_;
  absl::CondVar work_;
  GroupState state_ ABSL_GUARDED_BY(mutex_) = GroupState::kStarting;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> drain_deadline_ns_ ABSL_GUARDED_BY(mutex_);
  DrainOutcome drain_ ABSL_GUARDED_BY(mutex_);  // outcome if no more requests are cut
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<DrainWaiter> drain_ends_ ABSL_GUARDED_BY(mutex_);
  // All unfinished requests.
  absl::flat_hash_map<std::string, std::shared_ptr<Live>> live_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Live>> inbox_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Live>> cancels_ ABSL_GUARDED_BY(mutex_);
  // Counts of the inbox, including requests taken from it since the last Publish.
  int inbox_requests_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t inbox_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  SchedulerLoad load_ ABSL_GUARDED_BY(mutex_);
  SchedulerLimits live_limits_ ABSL_GUARDED_BY(mutex_);
  std::array<uint64_t, 32> length_counts_ ABSL_GUARDED_BY(mutex_) = {};
  int64_t longest_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  EngineMetrics metrics_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_step_ns_ ABSL_GUARDED_BY(mutex_) = 0;   // when the last step was committed
  uint64_t busy_since_ns_ ABSL_GUARDED_BY(mutex_) = 0;  // when the first request arrived

  // The rank loop's thread.
  size_t num_unread_ = 0;  // answers that had ended, but were not sent, when a drain cut others
  KvBlockPool pool_;
  Scheduler scheduler_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Active>> active_;
  // Active requests with a time limit, by when it passes (now_ns).
  absl::btree_set<std::pair<uint64_t, SequenceId>> time_limits_;
  LoadMeter meter_;
  uint64_t text_ns_ = 0;
  uint64_t step_begun_ns_ = 0;  // when the last step was committed, or work came after it
  uint64_t answers_ns_ = 0;     // answer time since then, kept across draft model steps
  uint64_t step_tokens_ = 0;    // of all steps so far, as the scheduler counts them
};

}  // namespace bulkhead
