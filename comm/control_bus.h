// ControlBus: broadcasts small messages (step plans) from rank 0 to every other rank. Called by the
// rank's main thread only. Idle readers sleep.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

class ControlBus {
 public:
  virtual ~ControlBus() = default;
  // Rank 0 only. Any length. Blocks while a reader is more than a few messages behind; a no-op in a
  // group of one.
  virtual absl::Status Publish(absl::string_view message) = 0;
  // Other ranks only. Blocks until a message arrives. UNAVAILABLE when the group is lost, or the
  // status it was aborted with.
  virtual absl::Status Receive(std::string* message) = 0;
};

}  // namespace bulkhead
