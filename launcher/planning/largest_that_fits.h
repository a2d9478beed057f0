// A search that the planner makes again and again. Pure.
#pragma once

#include <functional>

namespace bulkhead {

// The largest value in [least, most] that fits, where whatever is less than one that fits, fits,
// too; 0: none does. `least` is at least 1.
inline int LargestThatFits(int least, int most, const std::function<bool(int)>& fits) {
  if (least > most || !fits(least)) return 0;
  int low = least;
  int high = most;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace bulkhead
