// Whether two runs of the rig are bit-identical.
#pragma once

#include "tests/support/model_rig.h"

namespace bulkhead {

// Test failures name the prompt and the difference of its logits.
void ExpectSameBits(const RigResult& got, const RigResult& want);

}  // namespace bulkhead
