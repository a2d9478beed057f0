// `bulkhead run`: prompts from a file through the engine, with no server; under mpirun too.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// The status to end with, carrying the exit code; 1 when a prompt failed (every other result is
// written all the same). Must be called before the process has threads.
absl::Status RunRun(const RunOptions& options);

}  // namespace bulkhead
