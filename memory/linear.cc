#include "memory/linear.h"

#include <algorithm>

namespace bulkhead {

std::vector<WeightCell> CellsOf(const LinearShape& shape) {
  const WeightGroups& groups = shape.groups;
  BH_CHECK(IsQuantized(shape.format) && groups.size > 0 && groups.phase < groups.size);
  std::vector<WeightCell> cells;
  for (int slice = 0; slice < shape.num_slices(); ++slice) {
    const int64_t slice_end = shape.k_borders[slice + 1];
    for (int64_t begin = shape.k_borders[slice]; begin < slice_end;) {
      int64_t end = begin + kIndexedCellInputs;
      int64_t group = 0;
      if (groups.indexed == 0) {
        group = (groups.phase + begin) / groups.size;
        end = (group + 1) * groups.size - groups.phase;
      }
      end = std::min(end, slice_end);
      cells.push_back({begin, end, slice, group});
      begin = end;
    }
  }
  return cells;
}

int64_t NumGroups(const LinearShape& shape) {
  const WeightGroups& groups = shape.groups;
  if (groups.indexed > 0) return groups.indexed;
  return shape.cols == 0 ? 0 : (groups.phase + shape.cols - 1) / groups.size + 1;
}

}  // namespace bulkhead
