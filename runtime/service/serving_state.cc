#include "runtime/service/serving_state.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "runtime/engine/group_state.h"
#include "runtime/service/prompt_builder.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

std::string NewEpoch() {
  std::random_device device;
  return absl::StrFormat("%08x%08x", device(), device());
}

// The reason for a status that has none.
const char* ReasonFor(const absl::Status& status, ServingPhase phase) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return reason::kQueueFull;
    case absl::StatusCode::kOutOfRange:
      return reason::kKvBudget;
    case absl::StatusCode::kAlreadyExists:
      return reason::kDuplicateRequestId;
    case absl::StatusCode::kUnavailable:
      return phase == ServingPhase::kDraining || phase == ServingPhase::kStopping
                 ? reason::kDraining
                 : reason::kRankLost;
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

RequestRules RulesNow(const ServingParts& parts) {
  const SchedulerLimits limits = parts.control->Limits();
  RequestRules rules = parts.rules;
  rules.started_max_model_len = rules.max_model_len;
  rules.max_model_len = limits.max_model_len;
  rules.num_speculative_tokens = limits.drafts.num_speculative_tokens;
  return rules;
}

ServingState::ServingState() : epoch_(NewEpoch()) {}

void ServingState::SetListener(std::function<void(ServingPhase)> listener) {
  listener_ = std::move(listener);
}

bool ServingState::EnterLocked(ServingPhase phase) {
  if (phase <= phase_) return false;
  phase_ = phase;
  unannounced_.push_back(phase);
  return true;
}

void ServingState::Announce() {
  while (true) {
    ServingPhase phase;
    {
      const absl::MutexLock lock(&mutex_);
      if (announcing_ || unannounced_.empty()) return;
      announcing_ = true;
      phase = unannounced_.front();
      unannounced_.pop_front();
    }
    if (listener_) listener_(phase);
    const absl::MutexLock lock(&mutex_);
    announcing_ = false;
  }
}

void ServingState::SetReady(ServingParts parts) {
  parts.server_info.set_epoch(epoch_);
  {
    const absl::MutexLock lock(&mutex_);
    if (!EnterLocked(ServingPhase::kServing)) return;
    parts_ = std::make_shared<const ServingParts>(std::move(parts));
  }
  Announce();
}

void ServingState::SetDraining() {
  {
    const absl::MutexLock lock(&mutex_);
    EnterLocked(ServingPhase::kDraining);
  }
  Announce();
}

void ServingState::SetStopping() {
  {
    const absl::MutexLock lock(&mutex_);
    EnterLocked(ServingPhase::kStopping);
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
    const absl::MutexLock lock(&mutex_);
    if (!EnterLocked(ServingPhase::kLost)) return;
    lost_ = std::move(status);
  }
  Announce();
}

ServingPhase ServingState::phase() const {
  const absl::MutexLock lock(&mutex_);
  return phase_;
}

absl::Status ServingState::WhyUnavailableLocked() const {
  if (!lost_.ok()) return lost_;
  return WhyClosed(phase_ >= ServingPhase::kDraining ? GroupState::kDraining
                                                     : GroupState::kStarting);
}

absl::StatusOr<std::shared_ptr<const ServingParts>> ServingState::ForNewRequest() const {
  const absl::MutexLock lock(&mutex_);
  if (phase_ != ServingPhase::kServing) return WhyUnavailableLocked();
  return parts_;
}

absl::StatusOr<std::shared_ptr<const ServingParts>> ServingState::ForControl(
    const google::protobuf::Message& request) const {
  BH_RETURN_IF_ERROR(RefuseUnknownFields(request, ""));
  const absl::MutexLock lock(&mutex_);
  if (!lost_.ok() || parts_ == nullptr) return WhyUnavailableLocked();
  return parts_;
}

absl::Status ServingState::Explain(absl::Status status, absl::string_view request_id) const {
  if (status.ok()) return status;
  const std::string given = ReasonOf(status);
  const bool comes_back = status.code() == absl::StatusCode::kUnavailable;
  ServingPhase phase;
  {
    const absl::MutexLock lock(&mutex_);
    // The first cause, whatever it made unavailable.
    if (comes_back && !lost_.ok() && given != reason::kStopping) return lost_;
    phase = phase_;
  }
  if (!given.empty()) return status;
  const std::string id(request_id);
  const std::string word = ReasonFor(status, phase);
  if (word == reason::kInternal) {
    status = absl::InternalError(absl::StrCat("request ", id, ": ", status.message()));
  }
  status = WithReason(std::move(status), word, {{"request_id", id}});
  return comes_back ? WithRetryAfter(std::move(status), kRestartRetry) : status;
}

}  // namespace bulkhead
