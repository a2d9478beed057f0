// Whether a newly loaded model computes finite logits.
#pragma once

#include "absl/status/status.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// Collective: one step with a one-token prompt (id 0), in block 1. On rank 0 FAILED_PRECONDITION
// (exit code 3) if its logits are NaN or infinite, because every request's would be. Otherwise the
// step's own error.
absl::Status CheckLogits(StepRunner& runner, bool coordinator);

}  // namespace bulkhead
