// Whether the CPU's products in bf16 compute what ActivationDType says: Intel's manual and AMD's
// leave how they round to each other's reading, so they are tried.
#pragma once

#include <stdint.h>

#include "kernels/matmul/op.h"

namespace bulkhead {

// Compares some 50,000 pairs of products, denormal, infinite and cancelling ones among them, with
// fused multiply-adds; once. The CPU must have vdpbf16ps.
bool Bf16DotsAreFmas();

// Compares some 25,000 sums of tdpbf16ps, likewise, with its emulation; once. The CPU must have it,
// and the process its tiles.
bool Bf16TilesAreEmulated();
// The same of any MultiplyBf16InTiles.
bool AreSumsOfEmulation(void (*multiply)(const Product& product, const uint16_t* inputs,
                                         const ProductPart& part));

}  // namespace bulkhead
