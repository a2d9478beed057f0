// As intrinsic_probes.h, of kernels/cuda/device/wgmma_intrinsics.h.
#pragma once

#include "tests/kernels/cuda/intrinsic_probes.h"

namespace bulkhead::cuda {

// Of a block of 128 threads with 16 KiB of shared memory. in: numbers of 16 bits of a [64][32] and
// b [32][columns]; out [2][64][columns] in f32: 1 + a b, and the product of the first 16 of the
// depth alone. columns: 64 or 128.
Probe ProductProbe(bool is_f16, int columns, bool shared_a);

}  // namespace bulkhead::cuda
