// ControlBus: one small message (a step plan) from rank 0 to every other rank. Called by the rank's main
// thread only. Readers sleep while nothing comes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

class ControlBus {
 public:
  virtual ~ControlBus() = default;
  // Rank 0 only. Blocks while a reader is still two messages behind. Any length.
  virtual absl::Status Publish(absl::string_view message) = 0;
  // Every other rank. Blocks until a message comes. UNAVAILABLE when the group is lost.
  virtual absl::Status Receive(std::string* message) = 0;
};

}  // namespace bulkhead
