// What the service needs from the engine besides RequestInbox: metrics, live limits and draining.
// Implemented where the program is wired together.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/engine/engine_metrics.h"
#include "runtime/engine/request.h"
#include "runtime/engine/scheduler_limits.h"

namespace bulkhead {

// Thread-safe; no call waits for a step.
class EngineControl {
 public:
  virtual ~EngineControl() = default;
  // Everything except what the service itself knows: draining, errors, and most of `host`.
  virtual v1::LoadInfo Load() = 0;
  virtual EngineMetrics Metrics() = 0;
  virtual SchedulerLimits Limits() = 0;
  // INVALID_ARGUMENT above the sealed limits. `before` receives the previous limits.
  virtual absl::StatusOr<SchedulerLimits> SetLimits(const v1::SetLimitsRequest& change,
                                                    SchedulerLimits* before) = 0;
  // Refuses new requests, finishes running ones (within `timeout`; nullopt: the server's default),
  // then ends the group with exit code 0. May be called again: the shorter timeout applies.
  // `ended`, if still alive, is called on any thread when all requests have ended; never if the
  // group is lost.
  virtual void BeginDrain(std::optional<absl::Duration> timeout, DrainWaiter ended) = 0;
};

}  // namespace bulkhead
