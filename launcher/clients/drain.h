// `bulkhead drain`: lets a server finish running requests, then stop.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// UNAVAILABLE and the like with exit code 1.
absl::Status RunDrain(const DrainOptions& options);

}  // namespace bulkhead
