// How the chains of a panel's rows are completed at the end of a slice, in products with tile
// registers. Compiled per instruction set.
#pragma once

#include "kernels/matmul/op.h"
#include "kernels/matmul/panel_tree.h"
#include "kernels/matmul/slice_sums.h"
#include "simd.h"

namespace bulkhead::BH_ISA {

inline constexpr int64_t kRowFloats = kPanelColumns;

BH_INLINE int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
BH_INLINE int64_t Larger(int64_t a, int64_t b) { return a > b ? a : b; }
// The size of the fewest parts of `count` with at most `most` each; the last may be smaller.
BH_INLINE int64_t EvenPart(int64_t count, int64_t most) {
  const int64_t parts = Larger(1, (count + most - 1) / most);
  return (count + parts - 1) / parts;
}

// Rows that a thread takes through its panels together, and their unfinished left subtrees,
// smallest first.
struct SliceRows {
  int64_t row_begin;  // in the product
  int64_t num_rows;
  float* left;  // [kMaxSliceLevels][rows][32]
  int64_t level_floats;
};

// Adds the chains [rows][32] of rows [begin, end) of the product to their slice.
BH_INLINE void AddToSlice(const SliceSums& to, int64_t slice_index, int64_t begin, int64_t end,
                          const float* chains) {
  float* const slice = to.sums + slice_index * to.slice_rows * kRowFloats;
  for (int64_t r = begin; r < end; ++r, chains += kRowFloats) {
    float* const sum = slice + (to.rows == nullptr ? r : to.rows[r] - to.first_row) * kRowFloats;
    Store(sum, Add(Load(sum), Load(chains)));
    Store(sum + kLanes, Add(Load(sum + kLanes), Load(chains + kLanes)));
  }
}

// The chains [rows][32] of rows [begin, end) become the left subtree of a join, or the product's
// output, or are added to separate slices; null: an empty slice's. `product`: a Product or an
// Int8Product.
template <typename AnyProduct>
BH_INLINE void EndSlice(const AnyProduct& product, const SliceRows& rows, int64_t panel, int slice,
                        int64_t begin, int64_t end, const float* chains) {
  if (product.slice_sums != nullptr) {
    if (chains == nullptr) return;  // -0.0
    const SliceSums& to = *product.slice_sums;
    return AddToSlice(to, (panel - to.first_panel) * product.num_slices + slice,
                      rows.row_begin + begin, rows.row_begin + end, chains);
  }
  const int64_t columns_left = product.outputs - panel * kPanelColumns;
  const int columns = static_cast<int>(columns_left < kPanelColumns ? columns_left : kPanelColumns);
  const int joins = JoinsAfter(slice);
  const bool is_last = slice + 1 == product.num_slices;
  const int64_t level_floats = rows.level_floats;
  float* left = rows.left + begin * kRowFloats;
  float* out = product.out + (rows.row_begin + begin) * product.out_stride + panel * kPanelColumns;
  for (int64_t r = begin; r < end; ++r) {
    for (int v = 0; v < 2; ++v) {
      F32x16 sum = chains == nullptr ? Set1(-0.0f) : Load(chains + v * kLanes);
      for (int join = 0; join < joins; ++join) {
        sum = Add(Load(left + join * level_floats + v * kLanes), sum);
      }
      if (is_last) {
        StoreN(out + v * kLanes, sum, LanesFrom(columns, v));
      } else {
        Store(left + joins * level_floats + v * kLanes, sum);
      }
    }
    if (chains != nullptr) chains += kRowFloats;
    left += kRowFloats;
    out += product.out_stride;
  }
}

}  // namespace bulkhead::BH_ISA
