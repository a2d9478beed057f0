// `bulkhead limits`: shows what a running group allows, tightens it, widens it again.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// The status carries exit code 1.
absl::Status RunLimits(const LimitsOptions& options);

}  // namespace bulkhead
