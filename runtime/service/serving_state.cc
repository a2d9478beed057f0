#include "runtime/service/serving_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

// When another try is worth it: a queue moves within a second, a start or a restart takes longer.
constexpr absl::Duration kQueueRetry = absl::Seconds(1);
constexpr absl::Duration kStartRetry = absl::Seconds(2);
constexpr absl::Duration kRestartRetry = absl::Seconds(5);

absl::Status Draining() {
  return WithRetryAfter(
      WithReason(absl::UnavailableError("draining: the server finishes what runs and takes no new "
                                        "requests; send it to another server"),
                 reason::kDraining),
      kRestartRetry);
}

absl::Status QueueFull(absl::Status status, const ServingParts& parts) {
  const LoadSnapshot load = parts.control->Load();
  return WithRetryAfter(
      WithReason(std::move(status), reason::kQueueFull,
                 {{"running", absl::StrCat(load.num_requests_running)},
                  {"waiting", absl::StrCat(load.num_requests_waiting)},
                  {"waiting_tokens", absl::StrCat(load.num_waiting_tokens)},
                  {"limit", absl::StrCat(parts.server_info.max_num_queued_reqs())},
                  {"limit_tokens", absl::StrCat(parts.server_info.max_num_queued_tokens())}}),
      kQueueRetry);
}

}  // namespace

ServingState::ServingState(std::string epoch) : epoch_(std::move(epoch)) {}

void ServingState::SetListener(std::function<void(bool)> listener) {
  listener_ = std::move(listener);
}

void ServingState::Announce(bool serving) const {
  if (listener_) listener_(serving);
}

void ServingState::SetReady(ServingParts parts) {
  parts.server_info.set_epoch(epoch_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ != ServingPhase::kStarting) return;
    parts_ = std::make_shared<const ServingParts>(std::move(parts));
    phase_ = ServingPhase::kServing;
  }
  Announce(true);
}

void ServingState::SetDraining() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ == ServingPhase::kLost) return;
    phase_ = ServingPhase::kDraining;
  }
  Announce(false);
}

void ServingState::SetLost(absl::Status why, LostRank lost) {
  // Whatever broke the group, to a client it is a server that is gone.
  absl::Status status(absl::StatusCode::kUnavailable, why.message());
  why.ForEachPayload([&status](absl::string_view url, const absl::Cord& payload) {
    status.SetPayload(url, payload);
  });
  status = lost.rank.has_value()
               ? WithReason(std::move(status), reason::kRankLost,
                            {{"rank", absl::StrCat(*lost.rank)}, {"host", lost.host}})
               : WithReason(std::move(status), reason::kRankLost);
  status = WithRetryAfter(std::move(status), kRestartRetry);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ == ServingPhase::kLost) return;  // the first cause is the cause
    phase_ = ServingPhase::kLost;
    lost_ = std::move(status);
  }
  Announce(false);
}

ServingPhase ServingState::phase() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return phase_;
}

absl::Status ServingState::WhyUnavailableLocked() const {
  if (phase_ == ServingPhase::kLost) return lost_;
  if (phase_ == ServingPhase::kDraining) return Draining();
  return WithRetryAfter(
      WithReason(absl::UnavailableError("starting: the model is being loaded; try again soon"),
                 reason::kStarting),
      kStartRetry);
}

absl::StatusOr<std::shared_ptr<const ServingParts>> ServingState::ForNewRequest() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (phase_ != ServingPhase::kServing) return WhyUnavailableLocked();
  return parts_;
}

absl::StatusOr<std::shared_ptr<const ServingParts>> ServingState::ForControl() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (phase_ == ServingPhase::kLost || parts_ == nullptr) return WhyUnavailableLocked();
  return parts_;
}

absl::Status ServingState::Explain(absl::Status status, absl::string_view request_id) const {
  if (status.ok() || !ReasonOf(status).empty()) return status;
  const std::string id(request_id);
  std::shared_ptr<const ServingParts> parts;
  ServingPhase phase;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    parts = parts_;
    phase = phase_;
    if (status.code() == absl::StatusCode::kUnavailable && phase == ServingPhase::kLost) {
      return lost_;
    }
  }
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return parts == nullptr ? status : QueueFull(std::move(status), *parts);
    case absl::StatusCode::kOutOfRange:
      return WithReason(
          std::move(status), reason::kKvBudget,
          {{"num_kv_blocks",
            absl::StrCat(parts == nullptr ? 0 : parts->server_info.num_kv_blocks())},
           {"block_size", absl::StrCat(parts == nullptr ? 0 : parts->server_info.block_size())}});
    case absl::StatusCode::kAlreadyExists:
      return WithReason(std::move(status), reason::kDuplicateRequestId, {{"request_id", id}});
    case absl::StatusCode::kUnavailable:
      return WithRetryAfter(
          WithReason(std::move(status),
                     phase == ServingPhase::kDraining ? reason::kDraining : reason::kRankLost),
          kRestartRetry);
    case absl::StatusCode::kCancelled:
      return WithReason(std::move(status), reason::kCancelled, {{"request_id", id}});
    case absl::StatusCode::kDeadlineExceeded:
      return WithReason(std::move(status), reason::kDeadline, {{"request_id", id}});
    case absl::StatusCode::kInvalidArgument:
      return WithReason(std::move(status), reason::kInvalidValue);
    default:
      return WithReason(absl::InternalError(absl::StrCat("request ", id, ": ", status.message())),
                        reason::kInternal, {{"request_id", id}});
  }
}

}  // namespace bulkhead
