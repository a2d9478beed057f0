// ErrorCounts: number of calls that ended with an error, and of those refused for want of room, by
// the reason sent to the client. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "runtime/engine/refusal.h"

namespace bulkhead {

// Reasons for want of room. STRUCTURED_OUTPUT is one unless the form itself is at fault.
inline constexpr const char* kRoomReasons[] = {
    reason::kQueueFull,    reason::kKvBudget,     reason::kAnswerBudget,    reason::kHostMemory,
    reason::kTooManyCalls, reason::kRequestBytes, reason::kStructuredOutput};

class ErrorCounts {
 public:
  void Add(const absl::Status& why) {
    const std::string word = ReasonOf(why);
    AddReason(word);
    if (absl::IsInvalidArgument(why) || !absl::c_linear_search(kRoomReasons, word)) return;
    const absl::MutexLock lock(&mutex_);
    ++refusals_[word];
  }
  // Counts an error that is not a refusal for want of room.
  void AddReason(const std::string& reason) {
    const absl::MutexLock lock(&mutex_);
    ++counts_[reason.empty() ? "INTERNAL" : reason];
  }
  std::map<std::string, uint64_t> Get() const {
    const absl::MutexLock lock(&mutex_);
    return counts_;
  }
  // For want of room.
  std::map<std::string, uint64_t> Refusals() const {
    const absl::MutexLock lock(&mutex_);
    return refusals_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::map<std::string, uint64_t> counts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> refusals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace bulkhead
