// `bulkhead limits`: shows the limits of a running group, lowers them, raises them again.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// The status carries exit code 1.
absl::Status RunLimits(const LimitsOptions& options);

}  // namespace bulkhead
