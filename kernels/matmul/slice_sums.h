// Where the slices of several products are added before they join (kernels/experts/sum_cpu.cc).
#pragma once

#include <stdint.h>

namespace bulkhead {

// sums [panels from first_panel on][num_slices][slice_rows][32]: row r of a product belongs to row
// rows[r] - first_row of each slice, or to row r if `rows` is null.
struct SliceSums {
  float* sums;
  int64_t first_panel;
  int64_t slice_rows;
  const int32_t* rows;
  int64_t first_row;
};

}  // namespace bulkhead
