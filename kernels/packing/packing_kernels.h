// The loops that pack weights at load, one variant per instruction set, the same bits in all.
#pragma once

#include <stdint.h>

#include "kernels/packing/weight_loops.h"
#include "kernels/simd/per_isa.h"

namespace bulkhead {

// Sixteen rows become the lanes of consecutive words.
struct PackingKernels {
  // out[k * 16 + i] = low[i][k] | high[i][k] << 16 for k below `count`, for 16-bit numbers
  void (*pair_halves)(const void* const low[16], const void* const high[16], int64_t count,
                      uint32_t* out);
  // out[k * stride + i] = rows[i][k], for 32-bit words at any address
  void (*interleave)(const void* const rows[16], int64_t count, int64_t stride, uint32_t* out);
  // out[k * 16 + i] = low[i][k] | high[i][k] << 4 for k below `count`, for bytes below 16
  void (*pair_nibbles)(const void* const low[16], const void* const high[16], int64_t count,
                       uint32_t* out);
  WeightLoops loops;
};

BH_PER_ISA(extern const PackingKernels kPackingKernels)

}  // namespace bulkhead
