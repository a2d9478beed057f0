// How the CPU backend packs a weight: panels of 32 outputs, one contiguous stream over K each; N is
// padded with zeros to whole panels:
//   f32   [N/32][K][32 x f32]
//   f16   [N/32][K][32 x u16]
//   bf16  [N/32][pairs of K][32 x u32]   low half: an even k of a slice, high half: the next one,
//         or 0 if a slice ends with half a pair. Each slice begins with a whole pair.
// For quantised ones see kernels/packing/quantized_layout.h. Lanes run along N, never along K, so
// each output is the one chain that memory/linear.h promises.
#pragma once

#include <stdint.h>

namespace bulkhead {

enum class WeightFormat : uint8_t;  // memory/weight_format.h

inline constexpr int kPanelColumns = 32;

enum class PanelFormat { kF32, kBf16, kF16, kInt8, kInt4, kFp4, kFp8 };
inline constexpr int kNumFloatPanelFormats = 3;  // the first ones
PanelFormat PanelFormatOf(WeightFormat format);

// In a bf16 panel: the number of pairs in the slices before `slice`, or in all.
static constexpr int64_t PairsBefore(const int64_t* k_borders, int slice) {
  int64_t pairs = 0;
  for (int i = 0; i < slice; ++i) pairs += (k_borders[i + 1] - k_borders[i] + 1) / 2;
  return pairs;
}
inline constexpr int64_t kPairBytes = 4 * kPanelColumns;

}  // namespace bulkhead
