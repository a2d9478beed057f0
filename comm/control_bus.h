// ControlBus: one small message (a step plan) from rank 0 to every other rank. Called by the rank's
// main thread only. Readers sleep while nothing comes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

class ControlBus {
 public:
  virtual ~ControlBus() = default;
  // Rank 0 only. Any length. Blocks while a reader is more than a few messages behind; in a group
  // of one the message goes nowhere.
  virtual absl::Status Publish(absl::string_view message) = 0;
  // Every other rank. Blocks until a message comes. UNAVAILABLE when the group is lost, or whatever
  // it was aborted with.
  virtual absl::Status Receive(std::string* message) = 0;
};

}  // namespace bulkhead
