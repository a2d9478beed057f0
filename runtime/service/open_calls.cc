#include "runtime/service/open_calls.h"

#include <utility>

namespace bulkhead {

void OpenCalls::Begin(OpenCall* call, std::weak_ptr<OpenCall> self) {
  const std::lock_guard<std::mutex> lock(mutex_);
  calls_[call] = std::move(self);
}

void OpenCalls::Close(OpenCall* call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  calls_.erase(call);
  if (calls_.empty()) closed_.notify_all();
}

bool OpenCalls::Register(const std::string& request_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return running_.insert(request_id).second;
}

void OpenCalls::Release(const std::string& request_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  running_.erase(request_id);
}

bool OpenCalls::IsRunning(const std::string& request_id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return running_.count(request_id) > 0;
}

std::vector<std::string> OpenCalls::RunningIds() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {running_.begin(), running_.end()};
}

void OpenCalls::EndAll(const absl::Status& why) {
  std::vector<std::shared_ptr<OpenCall>> calls;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [pointer, weak] : calls_) {
      if (std::shared_ptr<OpenCall> call = weak.lock()) calls.push_back(std::move(call));
    }
  }
  for (const std::shared_ptr<OpenCall>& call : calls) call->EndNow(why);
}

bool OpenCalls::WaitUntilClosed(absl::Duration timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto closed = [this] { return calls_.empty(); };
  if (timeout == absl::InfiniteDuration()) {
    closed_.wait(lock, closed);
    return true;
  }
  return closed_.wait_for(lock, absl::ToChronoNanoseconds(timeout), closed);
}

}  // namespace bulkhead
