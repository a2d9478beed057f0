// bulkhead plan: would it fit? The arithmetic of `serve`, with no device and no weights.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Prints the report. RESOURCE_EXHAUSTED with exit code 4 when it does not fit.
absl::Status RunPlan(const PlanOptions& options);

}  // namespace bulkhead
