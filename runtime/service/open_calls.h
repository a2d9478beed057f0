// OpenCalls: generations whose answers are not completely sent. Finds them by id for Abort, ends
// them when the group is lost, and lets the process wait until their last bytes are sent.
// Thread-safe.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace bulkhead {

inline constexpr int kMaxChoices = 128;  // per generation: prompts times n
// The id of choice `index` if there are several.
std::string ChoiceId(const std::string& request_id, int index);

class OpenCall {
 public:
  virtual ~OpenCall() = default;
  // Ends the call with `why` unless it has already ended. Does not involve the engine.
  virtual void EndNow(absl::Status why) = 0;
  // Ends it with `why`: at once if the engine does not have its request yet, else at the engine's
  // next step.
  virtual void Cancel(absl::Status why) = 0;
};

class OpenCalls {
 public:
  // A call begins, may be admitted, and, once its status has left this process, closes.
  void Begin(OpenCall* call, std::weak_ptr<OpenCall> self);
  void Admit(OpenCall* call);
  void Close(OpenCall* call);

  // False if there is a generation with this id. Released when the generation ends, before its
  // client can be notified.
  bool Register(const std::string& request_id, OpenCall* call);
  void Release(const std::string& request_id);
  // Running ids of these requests and of their choices.
  std::set<std::string> RunningIdsOf(const std::set<std::string>& request_ids) const;
  // Null if none has this id.
  std::shared_ptr<OpenCall> Find(const std::string& request_id) const;
  std::vector<std::string> RunningIds() const;

  void EndAll(const absl::Status& why);
  // False if calls are still open after `timeout`.
  bool WaitUntilClosed(absl::Duration timeout);
  // How many admitted calls are open after `timeout`, or earlier when none is.
  size_t WaitForAdmitted(absl::Duration timeout);

 private:
  mutable absl::Mutex mutex_;
  std::unordered_map<OpenCall*, std::weak_ptr<OpenCall>> calls_ ABSL_GUARDED_BY(mutex_);
  std::unordered_set<OpenCall*> admitted_ ABSL_GUARDED_BY(mutex_);  // subset of calls_
  std::unordered_map<std::string, OpenCall*> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace bulkhead
