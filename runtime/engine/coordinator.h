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
  SchedulerLoad scheduler;  // waiting ones include those in the inbox
  int64_t num_kv_blocks = 0;
};

class Coordinator final : public RequestInbox {
 public:
  struct Options {
    SchedulerLimits limits;  // validated
    std::vector<TokenId> eos_ids;
    const Tokenizer* tokenizer = nullptr;  // null: token ids alone; outlives the coordinator
    std::function<uint64_t()> now_ns;      // monotonic; thread-safe
    absl::Duration log_period = absl::Seconds(10);
  };
  explicit Coordinator(Options options);
  // The rank loop has returned. Requests that have not ended yet end UNAVAILABLE.
  ~Coordinator() override;

  // RequestInbox: any thread.
  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) override;
  void Cancel(absl::string_view request_id, absl::Status why) override;

  // Any thread.
  int CancelAll(absl::Status why);  // how many were in flight
  void SetServing();  // until then requests are refused; no effect after a drain or a loss
  // Refuses new requests and finishes those that were accepted, queued ones too; what is left after
  // `timeout` ends UNAVAILABLE. Then NextStep says stop. A second call can only shorten the time.
  void BeginDrain(absl::Duration timeout);
  // Ends every request with `why` and refuses new ones with it. The first call counts.
  void Fail(const absl::Status& why);
  CoordinatorLoad Load() const;
  GroupState state() const;

  // The rank loop's thread.
  // Blocks while there is nothing to run. A step with plan.stop() ends the loop; after Fail() its
  // status.
  absl::StatusOr<Step> NextStep();
  // The result of the oldest step that was not committed yet. Delivers deltas and ends.
  void Commit(StepResult result);

 private:
  struct Live;    // a request as the other threads see it: guarded by mutex_
  struct Active;  // a request that the scheduler has: the rank loop's thread alone
  struct Delivery;

  absl::Status CheckOpen() const;  // mutex_ is held
  // The rank loop's thread.
  void TakeInbox();
  void Start(std::shared_ptr<Live> live);
  bool ReplayEmitted(Active& active, const Request& request, Delivery& delivery);
  void ApplyCancels(const std::vector<std::shared_ptr<Live>>& cancels);
  bool DrainIsOver();
  void EndAll(const absl::Status& why);
  Delivery DeliveryOf(Emission emission);
  void Deliver(std::vector<Delivery> deliveries);
  void NoteAdmitted();
  void PublishLoad();
  // Removes `live` from the table. mutex_ is held.
  void Forget(const Live& live);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  GroupState state_ = GroupState::kStarting;                      // guarded by mutex_
  absl::Status failure_;                                          // guarded by mutex_
  std::optional<uint64_t> drain_deadline_ns_;                     // guarded by mutex_
  absl::flat_hash_map<std::string, std::shared_ptr<Live>> live_;  // guarded by mutex_
  std::vector<std::shared_ptr<Live>> inbox_;                      // guarded by mutex_
  std::vector<std::shared_ptr<Live>> cancels_;                    // guarded by mutex_
  int64_t inbox_tokens_ = 0;                                      // guarded by mutex_
  SchedulerLoad load_;                                            // guarded by mutex_

  // The rank loop's thread.
  KvBlockPool pool_;
  Scheduler scheduler_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Active>> active_;
  LoadMeter meter_;
};

}  // namespace bulkhead
