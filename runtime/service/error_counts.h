// ErrorCounts: number of calls that ended with an error, by the reason sent to the client.
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace bulkhead {

class ErrorCounts {
 public:
  void Add(const std::string& reason) {
    const absl::MutexLock lock(&mutex_);
    ++counts_[reason.empty() ? "INTERNAL" : reason];
  }
  std::map<std::string, uint64_t> Get() const {
    const absl::MutexLock lock(&mutex_);
    return counts_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::map<std::string, uint64_t> counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace bulkhead
