// How a drain ends: with the last answer, or at its deadline.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "runtime/engine/coordinator_state.h"
#include "runtime/engine/refusal.h"

namespace bulkhead {

void Coordinator::BeginDrain(absl::Duration timeout, DrainWaiter ended) {
  const uint64_t now = options_.now_ns();
  const auto wait = static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Nanoseconds(timeout)));
  const uint64_t deadline = now + std::min(wait, std::numeric_limits<uint64_t>::max() - now);
  // Some answers may have ended but not be sent yet.
  const size_t num_unsent =
      options_.unsent_answers == nullptr ? 0 : options_.unsent_answers(absl::ZeroDuration());
  DrainOutcome outcome;
  {
    const absl::MutexLock lock(&mutex_);
    if (state_ == GroupState::kLost) return;
    if (state_ != GroupState::kDraining) drain_.finished = std::max(live_.size(), num_unsent);
    state_ = GroupState::kDraining;
    drain_deadline_ns_ = std::min(deadline, drain_deadline_ns_.value_or(deadline));
    work_.Signal();
    std::erase_if(drain_ends_, [](const auto& other) { return other.expired(); });
    if (!drained_) return drain_ends_.push_back(std::move(ended));
    outcome = drain_;
  }
  if (const auto end = ended.lock(); end != nullptr) (*end)(outcome);
}

// Whether every accepted request has ended; ends the remaining ones when the timeout has passed.
bool Coordinator::DrainIsOver() {
  const uint64_t now = options_.now_ns();
  size_t num_cut = 0;
  {
    const absl::MutexLock lock(&mutex_);
    if (state_ != GroupState::kDraining) return false;
    if (live_.empty()) return true;
    if (now < *drain_deadline_ns_) return false;
    num_cut = live_.size();
    drain_ = {.finished = drain_.finished - num_cut, .cut = num_cut};
  }
  BH_LOG(kWarning) << "the drain timeout has passed: " << num_cut
                   << (num_cut == 1 ? " request was cut" : " requests were cut");
  if (options_.unsent_answers != nullptr) {
    const size_t num_unsent = options_.unsent_answers(absl::ZeroDuration());
    num_unread_ = num_unsent - std::min(num_unsent, num_cut);
  }
  EndAll(absl::UnavailableError("the drain timeout has passed"), reason::kDraining);
  return true;
}

// Waits for clients to read ended answers: until the drain's deadline, which may be moved earlier,
// and at least for a moment.
void Coordinator::WaitForAnswers() {
  constexpr absl::Duration kLook = absl::Milliseconds(100);
  constexpr uint64_t kLeastNs = 500'000'000;
  if (options_.unsent_answers == nullptr) return;
  const uint64_t least = options_.now_ns() + kLeastNs;
  size_t num_unsent = 0;
  absl::Duration left;
  do {
    {
      const absl::MutexLock lock(&mutex_);
      if (state_ == GroupState::kLost) return;
      const uint64_t now = options_.now_ns();
      const uint64_t until = std::max(least, *drain_deadline_ns_);
      left = absl::Nanoseconds(until - std::min(now, until));
    }
    num_unsent = options_.unsent_answers(std::min(left, kLook));
  } while (num_unsent > 0 && left > absl::ZeroDuration());
  const absl::MutexLock lock(&mutex_);
  // Requests that were cut are already counted but may also be unsent; at most num_unread_ are
  // others.
  if (drain_.cut > 0) num_unsent = std::min(num_unsent, num_unread_);
  if (num_unsent == 0) return;
  drain_ = {.finished = drain_.finished - std::min(num_unsent, drain_.finished),
            .cut = drain_.cut + num_unsent};
  BH_LOG(kWarning) << "the drain timeout has passed: " << num_unsent
                   << (num_unsent == 1 ? " answer was" : " answers were") << " not read to the end";
}

// Called when every request has ended and its answer is sent or cut.
void Coordinator::EndDrain() {
  DrainOutcome outcome;
  std::vector<DrainWaiter> ends;
  {
    const absl::MutexLock lock(&mutex_);
    drained_ = true;
    outcome = drain_;
    ends = std::exchange(drain_ends_, {});
  }
  for (const auto& ended : ends) {
    if (const auto end = ended.lock(); end != nullptr) (*end)(outcome);
  }
}

}  // namespace bulkhead
