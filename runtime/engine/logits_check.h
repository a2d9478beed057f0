// Whether a model that has just been loaded computes numbers at all.
#pragma once

#include "absl/status/status.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {

// Collective: one step of a prompt of one token (id 0), in block 1. On rank 0 FAILED_PRECONDITION
// (exit code 3) when its logits are NaN or infinite, as those of every request would be. What the
// step itself fails with otherwise.
absl::Status CheckLogits(StepRunner& runner, bool coordinator);

}  // namespace bulkhead
