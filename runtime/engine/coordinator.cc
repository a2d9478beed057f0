#include "runtime/engine/coordinator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/engine/coordinator_state.h"
#include "runtime/engine/refusal.h"

namespace bulkhead {
namespace {

std::unique_ptr<PrefixCache> NewPrefixCache(const SchedulerLimits& limits,
                                            std::shared_ptr<KvEventLog> events) {
  if (!limits.prefix_caching) return nullptr;
  BH_LOG(kVerbose) << "prefix cache: "
                   << FormatBytes(PrefixCache::HostBytes(limits.num_kv_blocks, limits.block_tokens))
                   << " of host memory beside the KV blocks";
  return std::make_unique<PrefixCache>(limits.num_kv_blocks, limits.block_tokens,
                                       PrefixCache::GoodHash, std::move(events));
}

std::unique_ptr<SnapshotPool> NewSnapshotPool(const SchedulerLimits& limits) {
  if (limits.num_snapshots() == 0) return nullptr;
  return std::make_unique<SnapshotPool>(limits.num_snapshots());
}

Coordinator::Options WithClock(Coordinator::Options options) {
  if (options.now_ns == nullptr)
    options.now_ns = [] { return static_cast<uint64_t>(MonotonicNanos()); };
  return options;
}

}  // namespace

Coordinator::Coordinator(Options options)
    : options_(WithClock(std::move(options))),
      live_limits_(options_.limits),
      metrics_(options_.limits.max_model_len),
      pool_(options_.limits.num_kv_blocks, NewPrefixCache(options_.limits, options_.kv_events),
            NewSnapshotPool(options_.limits)),
      scheduler_(options_.limits, options_.eos_ids, pool_),
      meter_(static_cast<uint64_t>(absl::ToInt64Nanoseconds(options_.log_period)),
             options_.limits.usable_blocks()) {
  scheduler_.SetStepTarget(options_.step_target);
  const absl::MutexLock lock(&mutex_);
  metrics_.prefix_caching = options_.limits.prefix_caching;
  metrics_.num_speculative_tokens = options_.limits.drafts.num_speculative_tokens;
}

Coordinator::~Coordinator() {
  EndAll(absl::UnavailableError("the server has stopped"), reason::kStopping);
}

absl::Status Coordinator::WhyFull() const {
  const absl::MutexLock lock(&mutex_);
  return WhyFullLocked();
}

absl::Status Coordinator::WhyFullLocked() const {
  return CheckQueueHasRoom(live_limits_,
                           {.num_running = load_.num_running,
                            .num_waiting = static_cast<int64_t>(live_.size()) - load_.num_running});
}

absl::Status Coordinator::Submit(Request request, std::shared_ptr<RequestSink> sink) {
  const auto tokens = static_cast<int64_t>(request.prompt.size() + request.emitted.size());
  request.prompt.shrink_to_fit();  // it may wait for a long time
  request.max_model_len = this->limits().max_model_len;
  // Done here, because on the rank loop's thread all streams would wait.
  auto active = std::make_unique<Active>(options_.tokenizer, request);
  if (!request.emitted.empty()) {
    active->Replay(request, StopRule(request.stopping, options_.eos_ids, request.max_model_len));
  }
  const uint64_t now = options_.now_ns();
  const absl::MutexLock lock(&mutex_);
  BH_RETURN_IF_ERROR(WhyClosed(state_, failure_, {{"request_id", request.request_id}}));
  if (live_.contains(request.request_id)) {
    return WithReason(
        absl::AlreadyExistsError(absl::StrCat("request_id '", request.request_id,
                                              "' is in flight; choose another or leave it empty")),
        reason::kDuplicateRequestId, {{"request_id", request.request_id}});
  }
  const SchedulerLimits& limits = live_limits_;
  BH_RETURN_IF_ERROR(CheckRequestFits(limits, static_cast<int64_t>(request.prompt.size()),
                                      static_cast<int64_t>(request.emitted.size()),
                                      request.stopping.max_tokens));
  BH_RETURN_IF_ERROR(WhyFullLocked());
  auto live = std::make_shared<Live>();
  live->request = std::move(request);
  live->active = std::move(active);
  live->figures.prompt_tokens = static_cast<int64_t>(live->request.prompt.size());
  live->figures.max_tokens = live->request.stopping.max_tokens;
  live->request_id = live->request.request_id;
  live->sink = std::move(sink);
  live->submitted_ns = now;
  live->arrived_ns = live->request.arrived_ns > 0 ? std::min(live->request.arrived_ns, now) : now;
  live->figures.timings.prepare_ns = now - live->arrived_ns;
  live->figures.completion_tokens = static_cast<int64_t>(live->request.emitted.size());
  live->figures.resumed_tokens = live->figures.completion_tokens;
  if (live_.empty()) busy_since_ns_ = now;
  inbox_.push_back(live);
  ++inbox_requests_;
  inbox_tokens_ += tokens;
  live_.emplace(live->request_id, std::move(live));
  work_.Signal();
  return absl::OkStatus();
}

void Coordinator::Cancel(absl::string_view request_id, absl::Status why, const RequestSink* sink) {
  const absl::MutexLock lock(&mutex_);
  const auto found = live_.find(request_id);
  if (found == live_.end() || found->second->cancel.has_value()) return;
  if (sink != nullptr && found->second->sink.get() != sink) return;
  found->second->cancel = std::move(why);
  cancels_.push_back(found->second);
  work_.Signal();
}

void Coordinator::SetServing() {
  const absl::MutexLock lock(&mutex_);
  if (state_ == GroupState::kStarting) state_ = GroupState::kServing;
}

absl::StatusOr<SchedulerLimits> Coordinator::SetLimits(const v1::SetLimitsRequest& change,
                                                       SchedulerLimits* before) {
  const absl::MutexLock lock(&mutex_);
  if (before != nullptr) *before = live_limits_;
  BH_ASSIGN_OR_RETURN(live_limits_, Changed(options_.limits, live_limits_, change));
  return live_limits_;
}

void Coordinator::Fail(const absl::Status& why) {
  BH_CHECK(!why.ok());
  const uint64_t now = options_.now_ns();
  std::vector<std::pair<std::shared_ptr<Live>, RequestEnd>> ends;
  {
    const absl::MutexLock lock(&mutex_);
    if (state_ == GroupState::kLost) return;
    state_ = GroupState::kLost;
    failure_ = why;
    for (const auto& [id, live] : live_) {
      if (live->busy) continue;  // the rank loop's thread handles failure_ after delivering
      live->ended = true;
      ends.emplace_back(live, MakeEnd(*live, EndCause{why, {}, {}, {}}, now));
    }
    for (const auto& [live, end] : ends) Forget(*live);
    work_.Signal();
  }
  for (auto& [live, end] : ends) {
    LogEnd(*live, end);
    live->sink->OnEnd(std::move(end));
  }
  if (options_.kv_events != nullptr) options_.kv_events->Close();
}

CoordinatorLoad Coordinator::Load() const {
  const absl::MutexLock lock(&mutex_);
  CoordinatorLoad load{state_,       load_,          options_.limits.usable_blocks(),
                       live_limits_, length_counts_, longest_tokens_};
  load.scheduler.num_waiting += inbox_requests_;
  load.scheduler.num_waiting_tokens += inbox_tokens_;
  return load;
}

GroupState Coordinator::state() const {
  const absl::MutexLock lock(&mutex_);
  return state_;
}

SchedulerLimits Coordinator::limits() const {
  const absl::MutexLock lock(&mutex_);
  return live_limits_;
}

void Coordinator::CountLength(const Live& live) {
  const int64_t tokens = live.figures.prompt_tokens + live.figures.completion_tokens;
  ++length_counts_[std::min<size_t>(absl::bit_width(static_cast<uint64_t>(tokens)) - 1,
                                    length_counts_.size() - 1)];
  longest_tokens_ = std::max(longest_tokens_, tokens);
}

void Coordinator::Forget(const Live& live) {
  const auto found = live_.find(live.request_id);
  if (found != live_.end() && found->second.get() == &live) live_.erase(found);
}

}  // namespace bulkhead
