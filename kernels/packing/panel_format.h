// How the CPU backend packs a weight: panels of 32 outputs, one contiguous stream over K each; N is
// padded with zeros to whole panels:
//   f32   [N/32][K][32 x f32]
//   f16   [N/32][K][32 x u16]
//   bf16  [N/32][K][16 x u32]   low half: output i of the panel, high half: output 16 + i
// Quantised ones are in kernels/packing/quantized_layout.h. Lanes run along N, never along K, so
// each output is the one chain that memory/linear.h promises.
#pragma once

namespace bulkhead {

enum class PanelFormat { kF32, kBf16, kF16, kInt8, kInt4, kFp4, kFp8 };
inline constexpr int kNumFloatPanelFormats = 3;  // the first ones

}  // namespace bulkhead
