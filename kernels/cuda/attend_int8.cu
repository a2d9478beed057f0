#include "kernels/cuda/attend.cuh"

namespace bulkhead::cuda {

AttendLaunch AttendInt8Kernel(int head_dim, int column_tiles, bool split) {
  return AttendLaunchFor<KvFormat::kInt8>("attend int8", head_dim, column_tiles, split);
}

}  // namespace bulkhead::cuda
