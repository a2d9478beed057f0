// Coordinator: rank 0's engine. Requests come in from any thread through its inbox; the rank loop
// asks it for steps and hands back what they came to; deltas and ends go out to the requests'
// sinks.
//
// One mutex guards the inbox and the table of live requests, and is never held while a sink is
// called. The scheduler, the block pool and the text streams belong to the rank loop's thread
// alone. Fail() may come from the watchdog's thread while that thread hangs in a collective: it
// ends every request that is not being delivered to at that moment, and the rank loop's thread ends
// those itself.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "memory/kv_block_pool.h"
#include "runtime/engine/load_meter.h"
#include "runtime/engine/request.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/scheduler_limits.h"
#include "runtime/engine/step_runner.h"
#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {

enum class GroupState { kStarting, kServing, kDraining, kLost };

struct CoordinatorLoad {
  GroupState state = GroupState::kStarting;
  SchedulerLoad scheduler;  // as of the last step; waiting ones include those in the inbox
  int64_t num_kv_blocks = 0;
  LiveLimits limits;
  // Requests that have ended, by their tokens (prompt and generated): bucket i has those with
  // [2^i, 2^(i+1)).
  std::array<uint64_t, 32> length_counts = {};
  int64_t longest_tokens = 0;
};

class Coordinator final : public RequestInbox {
 public:
  struct Options {
    SchedulerLimits limits;  // validated
    std::vector<TokenId> eos_ids;
    const Tokenizer* tokenizer = nullptr;  // null: token ids alone; outlives the coordinator
    std::function<uint64_t()> now_ns;      // monotonic, thread-safe; null: the steady clock
    // Since the start, but for text_ns; called by the rank loop's thread. Null: not known.
    std::function<StepCosts()> costs;
    absl::Duration log_period = absl::Seconds(10);
  };
  explicit Coordinator(Options options);
  // The rank loop has returned. Requests that have not ended yet end UNAVAILABLE.
  ~Coordinator() override;

  // RequestInbox: any thread.
  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) override;
  void Cancel(absl::string_view request_id, absl::Status why) override;

  // Any thread.
  // INVALID_ARGUMENT for what was not sealed. `before`, which may be null, gets the limits so far.
  absl::StatusOr<LiveLimits> SetLimits(const LiveLimitsChange& change, LiveLimits* before);
  void SetServing();  // until then requests are refused; no effect after a drain or a loss
  // Refuses new requests and finishes those that were accepted, queued ones too; what is left after
  // `timeout` ends UNAVAILABLE at the next step. Then NextStep says stop. A second call can only
  // shorten the time.
  void BeginDrain(absl::Duration timeout);
  // Ends every request with `why` and refuses new ones. The first call counts.
  void Fail(const absl::Status& why);
  CoordinatorLoad Load() const;
  GroupState state() const;
  LiveLimits limits() const;

  // The rank loop's thread. At most limits.depth steps are uncommitted when NextStep is called,
  // less one. Blocks while there is nothing to run and nothing in flight. A step with
  // plan.collect() asks for a Commit first, one with plan.stop() ends the loop; after Fail() its
  // status.
  absl::StatusOr<Step> NextStep();
  // Of the oldest uncommitted step: delivers deltas and ends. Does nothing after Fail().
  void Commit(StepResult result);

 private:
  struct Live;      // a request as the other threads see it
  struct Active;    // a request that the scheduler has: the rank loop's thread alone
  struct EndCause;  // why a request ends
  struct Delivery;
  struct Arrivals;

  // mutex_ is held.
  absl::Status CheckOpen() const;
  void Forget(const Live& live);
  void CountLength(const Live& live);

  // The rank loop's thread.
  absl::StatusOr<Arrivals> TakeArrivals();
  void StartArrivals(Arrivals arrivals);
  std::optional<EndCause> Start(const std::shared_ptr<Live>& live, std::string& text);
  std::optional<EndCause> Advance(Active& active, TokenId token, std::optional<TokenFinish> finish,
                                  std::string& text);
  Delivery DeliveryOf(Emission emission);
  Delivery EndOf(const std::shared_ptr<Live>& live, absl::Status why);
  void Deliver(std::vector<Delivery> deliveries);
  bool DrainIsOver();
  void EndAll(const absl::Status& why);
  void RecordAdmitted();
  StepCosts Costs() const;  // since the start
  void Publish();

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  // Guarded by mutex_.
  GroupState state_ = GroupState::kStarting;
  absl::Status failure_;
  std::optional<uint64_t> drain_deadline_ns_;
  absl::flat_hash_map<std::string, std::shared_ptr<Live>> live_;  // everything that has not ended
  std::vector<std::shared_ptr<Live>> inbox_;
  std::vector<std::shared_ptr<Live>> cancels_;
  int64_t inbox_tokens_ = 0;  // of the inbox, and of what was taken from it since the last Publish
  SchedulerLoad load_;
  LiveLimits live_limits_;
  std::array<uint64_t, 32> length_counts_ = {};
  int64_t longest_tokens_ = 0;

  // The rank loop's thread.
  KvBlockPool pool_;
  Scheduler scheduler_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Active>> active_;
  LoadMeter meter_;
  uint64_t text_ns_ = 0;
};

}  // namespace bulkhead
