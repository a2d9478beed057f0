// Conversion of runs of numbers between the floating point formats, one variant per instruction
// set, the same bits in all (kernels/simd/number_format.h).
#pragma once

#include <stdint.h>

#include "kernels/simd/per_isa.h"

namespace bulkhead {

// from [count] to to [count]; they must not overlap.
using ConvertFunction = void (*)(const void* from, int64_t count, void* to);

struct ConvertKernels {
  ConvertFunction bf16_to_f32;
  ConvertFunction f16_to_f32;
  ConvertFunction f32_to_bf16;
  ConvertFunction f16_to_bf16;
  ConvertFunction f32_to_f16;
  ConvertFunction bf16_to_f16;
};

BH_PER_ISA(extern const ConvertKernels kConvertKernels)

}  // namespace bulkhead
