// Sizes of the GatedDelta kernels (kernels/gated_delta/cuda.cu). Needs no CUDA.
#pragma once

#include <cstdint>

namespace bulkhead::cuda {

// Both a multiple of 4.
inline constexpr int kMaxDeltaKeyDim = 128;
inline constexpr int kMaxDeltaValueDim = 1024;
inline constexpr int kMaxDeltaValueHeads = 1024;

}  // namespace bulkhead::cuda
