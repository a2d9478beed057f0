// As intrinsic_probes.h, of kernels/cuda/device/wgmma_intrinsics.h.
#pragma once

#include "tests/kernels/cuda/intrinsic_probes.h"

namespace bulkhead::cuda {

struct ProductCase {
  bool is_f16 = false;
  int columns = 0;  // 64 or 128; where b is transposed 16 or 32, too, and of shared_a 256
  bool shared_a = false;
  bool b_is_rows = false;
};
// Of a block of 128 threads with 40 KiB of shared memory. in: numbers of 16 bits of a [64][32] and
// b [32][columns]; out [2][64][columns] in f32: 1 + a b, and the product of the first 16 of the
// depth alone.
Probe ProductProbe(const ProductCase& of);

// in[3 lane]: a, b, c; out[lane]: FmaF16Pairs of them
Probe SumsOfF16PairsProbe();

}  // namespace bulkhead::cuda
