// `bulkhead run`: offline batch inference on a file of prompts, without a server; also under
// mpirun.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Returns the final status with the exit code; 1 if a prompt failed (all other results are still
// written). Must be called before the process has threads.
absl::Status RunRun(const RunOptions& options);

}  // namespace bulkhead
