// The numbers that ranks exchange periodically (launcher/group/step_stats.h).
#pragma once

#include <cstdint>

namespace bulkhead {

inline constexpr int kStepFigures = 10;  // per rank
// Bytes for all ranks' figures: pinned memory on each rank's host if it has a GPU.
constexpr int64_t StepFiguresBytes(int ranks) {
  return int64_t{kStepFigures} * ranks * static_cast<int64_t>(sizeof(float));
}

}  // namespace bulkhead
