// Whether the CPU's bf16 products compute what ActivationDType says: neither Intel's nor AMD's
// manual fully defines their rounding, so they are tested.
#pragma once

#include <stdint.h>

#include "kernels/matmul/op.h"

namespace bulkhead {

// Compares some 50,000 pairs of products, including denormal, infinite and cancelling ones, with
// fused multiply-adds; once. The CPU must have vdpbf16ps.
bool Bf16DotsAreFmas();

// The same for some 25,000 sums of tdpbf16ps and its emulation; once. The CPU must have it, and the
// process its tiles.
bool Bf16TilesAreEmulated();
// The same for any MultiplyBf16InTiles.
bool AreSumsOfEmulation(void (*multiply)(const Product& product, const uint16_t* inputs,
                                         const ProductPart& part));

}  // namespace bulkhead
