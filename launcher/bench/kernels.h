// `bench kernels`: how near the kernels come to the machine.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Collective; also alone. The status carries the exit code.
absl::Status RunKernels(const KernelsOptions& options);

}  // namespace bulkhead
