#include "kernels/attend/attend.cuh"

namespace bulkhead::cuda {

AttendLaunch AttendInt8Kernel(int head_dim, int column_tiles, bool split) {
  return AttendLaunchFor<KvFormat::kInt8>("attend int8", head_dim, column_tiles, split);
}

const KernelRegistration kRegistered(AllOf(AttendInt8Kernel));

}  // namespace bulkhead::cuda
