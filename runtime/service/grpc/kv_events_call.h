// KvEventsCall: SubscribeKvEvents of VllmEngine: a message for each batch of the log (memory/
// kv_event_log.h), one at a time. A client that reads too slowly is told to forget all blocks, and
// one that does not read is ended like any unread answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "memory/kv_event_log.h"
#include "runtime/service/call_transport.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

class KvEventsCall final : public Call, public std::enable_shared_from_this<KvEventsCall> {
 public:
  // `transport`: a stream's.
  KvEventsCall(ServiceCore* core, CallTransport* transport) : core_(core), transport_(transport) {}

  void Start(std::unique_ptr<CallRequest> request) override;
  void OnWritten(bool ok) override;
  void OnCancelled(bool deadline_passed) override;
  void OnClosed() override;

 private:
  absl::Status Prepare(CallRequest& request);
  // Writes the next batch, or ends, unless a write is in flight. Any thread.
  void Proceed();
  void EndSoon(absl::Status status);  // only the first status counts

  ServiceCore* const core_;
  CallTransport* const transport_;
  // Set by Start, before a reader can be woken.
  std::shared_ptr<KvEventLog> log_;
  AnswerBudget::Hold hold_;  // for the message in flight
  absl::Mutex mutex_;
  std::optional<int> reader_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_batch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;  // also true before Start
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace bulkhead
