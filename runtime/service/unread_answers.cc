#include "runtime/service/unread_answers.h"

#include <algorithm>
#include <utility>

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
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
  for (const Unread& unread : list_) grpc_call_unref(unread.call);
}

void UnreadAnswers::Add(grpc_call* call, int64_t bytes) {
  grpc_call_ref(call);
  const std::lock_guard<std::mutex> lock(mutex_);
  list_.push_back({call, bytes, Clock::now()});
  by_call_[call] = std::prev(list_.end());
  if (list_.size() == 1) wake_.notify_one();
}

void UnreadAnswers::Remove(grpc_call* call) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = by_call_.find(call);
    if (found == by_call_.end()) return;
    list_.erase(found->second);
    by_call_.erase(found);
  }
  grpc_call_unref(call);
}

grpc_call* UnreadAnswers::Mark(Unread& unread) {
  unread.ended = true;
  errors_->Add(reason::kSlowReader);
  grpc_call_ref(unread.call);
  return unread.call;
}

void UnreadAnswers::MakeRoom(int64_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    wanted_bytes_ = std::max(wanted_bytes_, bytes);
  }
  wake_.notify_one();
}

std::vector<grpc_call*> UnreadAnswers::TakeLargest(Clock::time_point now, int64_t bytes) {
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
  std::vector<grpc_call*> calls;
  for (Unread* one : unread) {
    if (bytes <= 0) break;
    bytes -= one->bytes;
    calls.push_back(Mark(*one));
  }
  return calls;
}

std::vector<grpc_call*> UnreadAnswers::TakeOverdue(Clock::time_point now) {
  std::vector<grpc_call*> calls;
  for (Unread& one : list_) {
    if (one.since + most_time_ > now) break;
    if (!one.ended) calls.push_back(Mark(one));
  }
  return calls;
}

void UnreadAnswers::Loop() {
  constexpr std::chrono::milliseconds kMaxWait(1000);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    if (list_.empty()) {
      wanted_bytes_ = 0;
      wake_.wait(lock);
      continue;
    }
    const Clock::time_point now = Clock::now();
    std::vector<grpc_call*> calls = TakeOverdue(now);
    for (grpc_call* call : TakeLargest(now, std::exchange(wanted_bytes_, 0))) calls.push_back(call);
    if (calls.empty()) {
      wake_.wait_for(lock, std::min(most_time_, kMaxWait));
      continue;
    }
    // gRPC may run the calls' final reactions, and so Remove, on this thread.
    lock.unlock();
    for (grpc_call* call : calls) {
      grpc_call_cancel_with_status(call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                   "the client did not read the answer", nullptr);
      grpc_call_unref(call);
    }
    lock.lock();
  }
}

}  // namespace bulkhead
