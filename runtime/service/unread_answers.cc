#include "runtime/service/unread_answers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/time.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

UnreadAnswers::UnreadAnswers(ErrorCounts* errors, std::chrono::milliseconds most_time,
                             std::chrono::milliseconds least_time)
    : errors_(errors),
      most_time_(most_time),
      least_time_(least_time),
      thread_([this] { Loop(); }) {}

UnreadAnswers::~UnreadAnswers() {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.Signal();
  thread_.join();
}

void UnreadAnswers::Add(const void* call, int64_t bytes, Drop drop) {
  const absl::MutexLock lock(&mutex_);
  list_.push_back({call, bytes, Clock::now(), std::move(drop)});
  by_call_[call] = std::prev(list_.end());
  if (list_.size() == 1) wake_.Signal();
}

void UnreadAnswers::Remove(const void* call) {
  Drop dropped;  // destroyed without the lock
  const absl::MutexLock lock(&mutex_);
  const auto found = by_call_.find(call);
  if (found == by_call_.end()) return;
  dropped = std::move(found->second->drop);
  list_.erase(found->second);
  by_call_.erase(found);
}

void UnreadAnswers::Dropped(const void* call, bool dropped) {
  if (dropped) return errors_->AddReason(reason::kSlowReader);
  const absl::MutexLock lock(&mutex_);
  const auto found = by_call_.find(call);
  if (found == by_call_.end()) return;
  found->second->ended = false;
  found->second->since = Clock::now();
  list_.splice(list_.end(), list_, found->second);
}

void UnreadAnswers::MakeRoom(int64_t bytes) {
  {
    const absl::MutexLock lock(&mutex_);
    wanted_bytes_ = std::max(wanted_bytes_, bytes);
  }
  wake_.Signal();
}

UnreadAnswers::Drops UnreadAnswers::TakeLargestLocked(Clock::time_point now, int64_t bytes) {
  std::vector<Unread*> unread;
  for (Unread& one : list_) {
    if (one.since + least_time_ > now) break;
    if (one.ended) {
      bytes -= one.bytes;
    } else {
      unread.push_back(&one);
    }
  }
  std::sort(unread.begin(), unread.end(),
            [](const Unread* a, const Unread* b) { return a->bytes > b->bytes; });
  Drops calls;
  for (Unread* one : unread) {
    if (bytes <= 0) break;
    bytes -= one->bytes;
    one->ended = true;
    calls.emplace_back(one->call, one->drop);
  }
  return calls;
}

UnreadAnswers::Drops UnreadAnswers::TakeOverdueLocked(Clock::time_point now) {
  Drops calls;
  for (Unread& one : list_) {
    if (one.since + most_time_ > now) break;
    if (std::exchange(one.ended, true)) continue;
    calls.emplace_back(one.call, one.drop);
  }
  return calls;
}

void UnreadAnswers::Loop() {
  const absl::Duration wait = std::min(absl::FromChrono(most_time_), absl::Seconds(1));
  mutex_.Lock();
  while (!stopping_) {
    if (list_.empty()) {
      wanted_bytes_ = 0;
      wake_.Wait(&mutex_);
      continue;
    }
    const Clock::time_point now = Clock::now();
    Drops calls = TakeOverdueLocked(now);
    for (auto& call : TakeLargestLocked(now, std::exchange(wanted_bytes_, 0))) {
      calls.push_back(std::move(call));
    }
    if (calls.empty()) {
      wake_.WaitWithTimeout(&mutex_, wait);
      continue;
    }
    // Calls may close, and so call Remove, on this thread.
    mutex_.Unlock();
    for (auto& [call, drop] : calls) Dropped(call, std::exchange(drop, nullptr)());
    mutex_.Lock();
  }
  mutex_.Unlock();
}

}  // namespace bulkhead
