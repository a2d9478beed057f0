// `bulkhead drain`: lets a server finish what runs, then end.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// UNAVAILABLE and the like with exit code 1.
absl::Status RunDrain(const DrainOptions& options);

}  // namespace bulkhead
