// VllmGenerateCall: one Generate call of VllmEngine: a call of the service for each of its n
// choices, whose answers are written as they come, one message at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "runtime/service/call_transport.h"
#include "runtime/service/grpc/vllm_engine_messages.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

class VllmGenerateCall final : public Call, public std::enable_shared_from_this<VllmGenerateCall> {
 public:
  // `transport`: a stream's.
  VllmGenerateCall(ServiceCore* core, CallTransport* transport);
  ~VllmGenerateCall() override;

  void Start(std::unique_ptr<CallRequest> request) override;
  void OnWritten(bool ok) override;
  void OnCancelled(bool deadline_passed) override;
  void OnClosed() override;

 private:
  class Choice;
  struct Item {
    Choice* choice = nullptr;
    MessagePieces message;
    bool is_last = false;  // the last of its choice
  };

  void Begin(CallRequest& request, const RequestOrigin& origin);
  absl::Status MakeChoices(CallRequest& request, std::optional<VllmGeneration>& generation);
  void StartChoices(VllmGeneration generation, const RequestOrigin& origin);
  void Refuse(const absl::Status& why);

  // Called by the choices.
  void Enqueue(Item item);
  void OnEnd(Choice* choice, const absl::Status& status, std::optional<MessagePieces> last);
  void FailLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelChoices(bool deadline_passed);

  // Sends what can be sent; after every change.
  void Proceed();
  // After a failure: drops the queue, and returns the choices that wait for OnWritten.
  std::vector<Choice*> DropQueueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ServiceCore* const core_;
  CallTransport* const transport_;
  std::once_flag accepted_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Choice>> choices_;  // constant once any of them is started
  int extra_calls_ = 0;                           // constant once any of them is started
  int num_open_ ABSL_GUARDED_BY(mutex_) = 0;      // choices that have not ended
  bool has_begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_starting_ ABSL_GUARDED_BY(mutex_) = false;  // no end before every Start has returned
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<Item> writing_ ABSL_GUARDED_BY(mutex_);  // without its message
  std::optional<absl::Status> failure_ ABSL_GUARDED_BY(mutex_);
  std::optional<bool> cancelled_ ABSL_GUARDED_BY(mutex_);  // whether the deadline has passed
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;           // End was called
};

}  // namespace bulkhead
