// DrainCall: Control's Drain on the main port: answered at once, or when the drain has ended.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "runtime/service/call_transport.h"
#include "runtime/service/control_answers.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

class DrainCall final : public Call, public std::enable_shared_from_this<DrainCall> {
 public:
  DrainCall(ServiceCore* core, CallTransport* transport, std::string client)
      : core_(core), transport_(transport), client_(std::move(client)) {}

  void Start(std::unique_ptr<CallRequest> request) override;
  void OnCancelled(bool deadline_passed) override;
  void OnClosed() override;

 private:
  absl::Status Begin(CallRequest& request, bool* waits);
  void OnDrained(const DrainOutcome& outcome);
  void End(const absl::Status& status);

  ServiceCore* const core_;
  CallTransport* const transport_;
  const std::string client_;
  const DrainEnd drained_ = [this](const DrainOutcome& outcome) { OnDrained(outcome); };
  std::atomic<bool> ended_ = false;
  v1::DrainResponse response_;  // begun by Start, completed when the drain has ended
};

}  // namespace bulkhead
