// ErrorCounts: number of calls that ended with an error, by the reason sent to the client.
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace bulkhead {

class ErrorCounts {
 public:
  void Add(const std::string& reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++counts_[reason.empty() ? "INTERNAL" : reason];
  }
  std::map<std::string, uint64_t> Get() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> counts_;
};

}  // namespace bulkhead
