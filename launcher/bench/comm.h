// `bench comm`: how fast the ranks of a group communicate.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Collective; a group of one is refused with exit code 5. The status carries the exit code.
absl::Status RunComm(const CommOptions& options);

}  // namespace bulkhead
