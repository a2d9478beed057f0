// The product kernels: the interface between the CPU backend and the sources compiled per
// instruction set.
#pragma once

#include <stdint.h>

#include "kernels/matmul/slice_sums.h"
#include "kernels/packing/panel_format.h"
#include "kernels/packing/quantized_layout.h"
#include "kernels/simd/per_isa.h"

namespace bulkhead {

inline constexpr int kMaxSlices = 8;
inline constexpr int kMaxSliceLevels = 3;  // of the tree over kMaxSlices

// Blocks of a product of many rows: kBlockInputs inputs of kGroupRows rows of x are packed and stay
// in L2 while panels pass; with several slices so do the unfinished subtrees of kChunkPanels
// panels. With one slice a block has as many inputs as the scratch holds, at most kGroupRows *
// kMaxWordsPerRow words and fewer on some instruction sets. If that holds all slices of a group's
// rows, they stay there together.
inline constexpr int64_t kBlockInputs = 512;
inline constexpr int64_t kGroupRows = 48;
inline constexpr int64_t kChunkPanels = 8;
inline constexpr int64_t kMaxWordsPerRow = 3584;  // 672 KiB per group
inline constexpr int64_t kSubtreeFloatsPerRow = kPanelColumns * kMaxSliceLevels;  // per panel
// Floats of a row of bf16 pairs, for any variant: a pair is at most two floats, and a slice with an
// odd number of inputs ends with half a pair.
static constexpr int64_t PairFloats(int64_t inputs) { return inputs + 2 * (kMaxSlices + 1); }
// Scratch of one thread, per row of the largest product, up to kGroupRows rows: at least the first.
inline constexpr int64_t kMinScratchFloatsPerRow =
    kBlockInputs + kChunkPanels * kSubtreeFloatsPerRow;
static constexpr int64_t ScratchFloatsPerRow(int64_t max_inputs) {
  const int64_t words =
      PairFloats(max_inputs) < kMaxWordsPerRow ? PairFloats(max_inputs) : kMaxWordsPerRow;
  return words + kSubtreeFloatsPerRow < kMinScratchFloatsPerRow ? kMinScratchFloatsPerRow
                                                                : words + kSubtreeFloatsPerRow;
}

// out = x * weight^T.
struct Product {
  const float* x;  // [rows, inputs]; few rows in bf16: their pairs, from RoundRows
  int64_t x_stride;
  // Each row's position in x, for MultiplyMany, RoundRows and RoundRowToTiles; null: in order.
  const int32_t* x_rows;
  const void* weight;  // packed, in a float format
  PanelFormat format;
  bool in_bf16;              // only kBf16: ActivationDType::kBf16
  int64_t outputs;           // N
  int64_t inputs;            // K
  const int64_t* k_borders;  // [num_slices + 1]
  int num_slices;            // a power of two, at most kMaxSlices
  float* out;                // [rows, outputs]
  int64_t out_stride;
  // Set for the other formats, whose weights are widened to f32 cell by cell; else null.
  const QuantizedPanels* quantized;
  // For MultiplyBf16InTiles: slices are added to these instead of being joined into `out`; or null.
  const SliceSums* slice_sums = nullptr;
};

// The part of a product that one thread computes.
struct ProductPart {
  int64_t panel_begin;
  int64_t panel_end;
  int64_t row_begin;
  int64_t row_end;
  float* scratch;  // [scratch_floats]; none for MultiplyFew and MultiplySlice
  // For MultiplyMany: at least min(rows, kGroupRows) * kMinScratchFloatsPerRow.
  int64_t scratch_floats = 0;
};

inline constexpr int kMaxFewRowsOfAnyIsa = 4;
// Up to this many rows are read in place, and each panel is streamed once from its first byte to
// its last.
BH_PER_ISA_AND_BF16(extern const int kMaxFewRows)
// At most kMaxFewRows rows; no scratch.
BH_PER_ISA_AND_BF16(void MultiplyFew(const Product& product, const ProductPart& part))
// Any number of rows.
BH_PER_ISA_AND_BF16(void MultiplyMany(const Product& product, const ProductPart& part))
// The chain of one slice of one panel, for at most kMaxFewRows rows: into sums [rows][32].
BH_PER_ISA_AND_BF16(void MultiplySlice(const Product& product, const ProductPart& part, int slice,
                                       float* sums))
// pairs [rows][PairFloats(inputs)] = x rounded to bf16, which this variant's MultiplyFew and
// MultiplySlice take instead of x.
BH_PER_ISA_AND_BF16(void RoundRows(const Product& product, int64_t rows, float* pairs))

}  // namespace bulkhead
