// UnreadAnswers: calls that have ended here but whose answers are not sent, because their clients
// do not read. Ends those that take too long. Thread-safe.
#pragma once

#include <grpc/grpc.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "runtime/service/error_counts.h"

namespace bulkhead {

class UnreadAnswers {
 public:
  // Minimum time before an unread answer is dropped for its bytes.
  static constexpr std::chrono::seconds kMinTime{5};

  // Answers have `most_time` to be sent. `errors` counts ended ones, as SLOW_READER.
  explicit UnreadAnswers(ErrorCounts* errors, std::chrono::milliseconds most_time,
                         std::chrono::milliseconds least_time = kMinTime);
  ~UnreadAnswers();
  UnreadAnswers(const UnreadAnswers&) = delete;
  UnreadAnswers& operator=(const UnreadAnswers&) = delete;

  // Before the call is finished. The call's memory stays until Remove.
  void Add(grpc_call* call, int64_t bytes);
  // No effect for a call that was not added.
  void Remove(grpc_call* call);
  // Soon ends answers of least_time and older, largest first, until `bytes` are free.
  void MakeRoom(int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  struct Unread {
    grpc_call* call = nullptr;
    int64_t bytes = 0;
    Clock::time_point since;
    bool ended = false;
  };
  using List = std::list<Unread>;  // oldest first

  void Loop();
  // Requires the lock: calls to end, each with an additional reference.
  std::vector<grpc_call*> TakeOverdue(Clock::time_point now);
  std::vector<grpc_call*> TakeLargest(Clock::time_point now, int64_t bytes);
  grpc_call* Mark(Unread& unread);

  ErrorCounts* const errors_;
  const std::chrono::milliseconds most_time_;
  const std::chrono::milliseconds least_time_;
  std::mutex mutex_;
  std::condition_variable wake_;
  List list_;
  std::unordered_map<grpc_call*, List::iterator> by_call_;
  int64_t wanted_bytes_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace bulkhead
