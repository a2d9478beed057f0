// Whether two runs of the rig gave the same bits.
#pragma once

#include "tests/support/model_rig.h"

namespace bulkhead {

// Test failures name the prompt and how far apart its logits are.
void ExpectSameBits(const RigResult& got, const RigResult& want);

}  // namespace bulkhead
