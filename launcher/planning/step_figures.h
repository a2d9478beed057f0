// The numbers that ranks tell one another now and then (launcher/group/step_stats.h).
#pragma once

#include <cstdint>

namespace bulkhead {

inline constexpr int kStepFigures = 10;  // of a rank
// Of all ranks: pinned memory of each rank's host, where it has a GPU.
constexpr int64_t StepFiguresBytes(int ranks) {
  return int64_t{kStepFigures} * ranks * static_cast<int64_t>(sizeof(float));
}

}  // namespace bulkhead
