// Binary search used by the planner. Pure.
#pragma once

namespace bulkhead {

// The largest value in [least, most] that fits, if fitting is monotone; 0: none. `least` is at
// least 1.
template <typename Integer, typename Fits>
Integer LargestThatFits(Integer least, Integer most, const Fits& fits) {
  if (least > most || !fits(least)) return 0;
  Integer low = least;
  Integer high = most;
  while (low < high) {
    const Integer middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace bulkhead
