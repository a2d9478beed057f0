// `bench kernels`: the kernels' speed relative to the machine's.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Collective, or in a group of one. The status carries the exit code.
absl::Status RunKernels(const KernelsOptions& options);

}  // namespace bulkhead
