#include "runtime/service/serving_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

// Retry delays: a queue moves within a second, a start or restart takes longer.
constexpr absl::Duration kQueueRetry = absl::Seconds(1);
constexpr absl::Duration kStartRetry = absl::Seconds(2);
constexpr absl::Duration kRestartRetry = absl::Seconds(5);

absl::Status Draining() {
  return WithRetryAfter(
      WithReason(absl::UnavailableError("draining: the server finishes running requests and "
                                        "accepts no new ones; send it to another server"),
                 reason::kDraining),
      kRestartRetry);
}

absl::Status QueueFull(absl::Status status, const ServingParts& parts) {
  const v1::LoadInfo load = parts.control->Load();
  return WithRetryAfter(
      WithReason(std::move(status), reason::kQueueFull,
                 {{"running", absl::StrCat(load.num_requests_running())},
                  {"waiting", absl::StrCat(load.num_requests_waiting())},
                  {"waiting_tokens", absl::StrCat(load.num_waiting_tokens())},
                  {"limit", absl::StrCat(parts.control->Limits().max_num_queued_reqs)},
                  {"limit_tokens", absl::StrCat(parts.server_info.max_num_queued_tokens())}}),
      kQueueRetry);
}

// The engine's reason, else the one for the status code.
std::string ReasonFor(const absl::Status& status, ServingPhase phase) {
  const std::string given = RefusalReason(status);
  if (given == "GROUP_LOST") return reason::kRankLost;
  if (!given.empty()) return given;
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return reason::kQueueFull;
    case absl::StatusCode::kOutOfRange:
      return reason::kKvBudget;
    case absl::StatusCode::kAlreadyExists:
      return reason::kDuplicateRequestId;
    case absl::StatusCode::kUnavailable:
      return phase == ServingPhase::kDraining ? reason::kDraining : reason::kRankLost;
    case absl::StatusCode::kCancelled:
      return reason::kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return reason::kDeadline;
    case absl::StatusCode::kInvalidArgument:
      return reason::kInvalidValue;
    default:
      return reason::kInternal;
  }
}

}  // namespace

ServingState::ServingState(std::string epoch) : epoch_(std::move(epoch)) {}

void ServingState::SetListener(std::function<void(bool)> listener) {
  listener_ = std::move(listener);
}

void ServingState::Announce() {
  const std::lock_guard<std::mutex> announcing(announce_mutex_);
  if (listener_) listener_(phase() == ServingPhase::kServing);
}

void ServingState::SetReady(ServingParts parts) {
  parts.server_info.set_epoch(epoch_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ != ServingPhase::kStarting) return;
    parts_ = std::make_shared<const ServingParts>(std::move(parts));
    phase_ = ServingPhase::kServing;
  }
  Announce();
}

void ServingState::SetDraining() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ == ServingPhase::kLost) return;
    phase_ = ServingPhase::kDraining;
  }
  Announce();
}

void ServingState::SetLost(const absl::Status& why, LostRank lost) {
  // Whatever the cause, to a client the server is unavailable.
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
    if (phase_ == ServingPhase::kLost) return;  // keep the first cause
    phase_ = ServingPhase::kLost;
    lost_ = std::move(status);
  }
  Announce();
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

absl::StatusOr<std::shared_ptr<const ServingParts>> ServingState::ForControl(
    const google::protobuf::Message& request) const {
  BH_RETURN_IF_ERROR(RefuseUnknownFields(request, ""));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (phase_ == ServingPhase::kLost || parts_ == nullptr) return WhyUnavailableLocked();
  return parts_;
}

absl::Status ServingState::Explain(absl::Status status, absl::string_view request_id) const {
  if (status.ok() || !ReasonOf(status).empty()) return status;
  std::shared_ptr<const ServingParts> parts;
  ServingPhase phase;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (status.code() == absl::StatusCode::kUnavailable && phase_ == ServingPhase::kLost) {
      return lost_;
    }
    parts = parts_;
    phase = phase_;
  }
  const std::string id(request_id);
  const std::string word = ReasonFor(status, phase);
  if (word == reason::kInternal) {
    status = absl::InternalError(absl::StrCat("request ", id, ": ", status.message()));
  }
  if (word == reason::kQueueFull && parts != nullptr) {
    return QueueFull(std::move(status), *parts);
  }
  if (word == reason::kKvBudget && parts != nullptr) {
    RefusalNumbers numbers = RefusalNumbersOf(status);
    return WithReason(std::move(status), word,
                      {{"needed_blocks", absl::StrCat(numbers["needed_blocks"])},
                       {"rank_min_blocks", absl::StrCat(numbers["rank_min_blocks"])},
                       {"block_size", absl::StrCat(parts->server_info.block_size())}});
  }
  const bool comes_back = status.code() == absl::StatusCode::kUnavailable;
  status = WithReason(std::move(status), word, {{"request_id", id}});
  return comes_back ? WithRetryAfter(std::move(status), kRestartRetry) : status;
}

}  // namespace bulkhead
