#include "kernels/attend/attend.cuh"

namespace bulkhead::cuda {

AttendLaunch AttendInt4Kernel(int head_dim, int column_tiles, bool split) {
  return AttendLaunchFor<KvFormat::kInt4>("attend int4", head_dim, column_tiles, split);
}

const KernelRegistration kRegistered(AllOf(AttendInt4Kernel));

}  // namespace bulkhead::cuda
