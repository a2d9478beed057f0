#include "runtime/service/open_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

// The request id of a ChoiceId; else the id itself.
std::string RequestIdOf(const std::string& id) {
  const size_t end = id.find_last_not_of("0123456789");
  return end == std::string::npos || id[end] != '#' ? id : id.substr(0, end);
}

}  // namespace

std::string ChoiceId(const std::string& request_id, int index) {
  return absl::StrCat(request_id, "#", index);
}

void OpenCalls::Begin(OpenCall* call, std::weak_ptr<OpenCall> self) {
  const absl::MutexLock lock(&mutex_);
  calls_[call] = std::move(self);
}

void OpenCalls::Admit(OpenCall* call) {
  const absl::MutexLock lock(&mutex_);
  admitted_.insert(call);
}

void OpenCalls::Close(OpenCall* call) {
  const absl::MutexLock lock(&mutex_);
  calls_.erase(call);
  admitted_.erase(call);
}

bool OpenCalls::Register(const std::string& request_id, OpenCall* call) {
  const absl::MutexLock lock(&mutex_);
  return running_.try_emplace(request_id, call).second;
}

void OpenCalls::Release(const std::string& request_id) {
  const absl::MutexLock lock(&mutex_);
  running_.erase(request_id);
}

std::set<std::string> OpenCalls::RunningIdsOf(const std::set<std::string>& request_ids) const {
  std::set<std::string> ids;
  const absl::MutexLock lock(&mutex_);
  for (const auto& [id, call] : running_) {
    if (request_ids.count(id) > 0 || request_ids.count(RequestIdOf(id)) > 0) ids.insert(id);
  }
  return ids;
}

std::shared_ptr<OpenCall> OpenCalls::Find(const std::string& request_id) const {
  const absl::MutexLock lock(&mutex_);
  const auto found = running_.find(request_id);
  if (found == running_.end()) return nullptr;
  const auto call = calls_.find(found->second);
  return call == calls_.end() ? nullptr : call->second.lock();
}

std::vector<std::string> OpenCalls::RunningIds() const {
  const absl::MutexLock lock(&mutex_);
  std::vector<std::string> ids;
  for (const auto& [id, call] : running_) ids.push_back(id);
  return ids;
}

void OpenCalls::EndAll(const absl::Status& why) {
  std::vector<std::shared_ptr<OpenCall>> calls;
  {
    const absl::MutexLock lock(&mutex_);
    for (const auto& [pointer, weak] : calls_) {
      if (std::shared_ptr<OpenCall> call = weak.lock()) calls.push_back(std::move(call));
    }
  }
  for (const std::shared_ptr<OpenCall>& call : calls) call->EndNow(why);
}

bool OpenCalls::WaitUntilClosed(absl::Duration timeout) {
  const auto closed = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.empty(); };
  const absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&closed), timeout);
}

size_t OpenCalls::WaitForAdmitted(absl::Duration timeout) {
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return admitted_.empty(); };
  const absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&none), timeout);
  return admitted_.size();
}

}  // namespace bulkhead
