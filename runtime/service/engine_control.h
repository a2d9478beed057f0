// What the service needs of the engine besides RequestInbox: numbers to report, and the way into a
// drain. Implemented where the program is wired together.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/engine/scheduler_limits.h"

namespace bulkhead {

// Thread-safe; no call waits for a step.
class EngineControl {
 public:
  virtual ~EngineControl() = default;
  // But for what the service itself knows: draining, errors, and most of `host`.
  virtual v1::LoadInfo Load() = 0;
  virtual LiveLimits Limits() = 0;
  // INVALID_ARGUMENT for what was not sealed. `before` gets the limits so far.
  virtual absl::StatusOr<LiveLimits> SetLimits(const LiveLimitsChange& change,
                                               LiveLimits* before) = 0;
  // Refuses new requests, finishes what runs (at most for `timeout`; nullopt: the server's
  // default), then ends the group with exit code 0. May be called again: the shorter time counts.
  virtual void BeginDrain(std::optional<absl::Duration> timeout) = 0;
};

}  // namespace bulkhead
