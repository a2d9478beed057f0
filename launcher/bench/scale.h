// `bench scale`: what more ranks bring, planned and measured.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Starts every group itself; refused with exit code 5 in a rank. A size that does not fit is a row
// without a measurement; one that fails ends the command with its cause and code.
absl::Status RunScale(const ScaleOptions& options);

}  // namespace bulkhead
