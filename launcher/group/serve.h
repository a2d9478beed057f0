// `bulkhead serve`: one rank of a served group.
#pragma once

#include <sys/types.h>

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Ok after a drain, otherwise the final status with the exit code. `parent`: from ForkUnderParent.
// Must be called before the process has threads: it blocks the signals that it handles.
absl::Status RunServe(const ServeOptions& options, pid_t parent);

}  // namespace bulkhead
