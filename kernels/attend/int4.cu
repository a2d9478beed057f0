#include "kernels/attend/attend.cuh"

namespace bulkhead::cuda {

AttendLaunch AttendInt4Kernel(int head_dim, int column_tiles, AttendWork work) {
  return AttendLaunchFor<KvFormat::kInt4>("attend int4", head_dim, column_tiles, work);
}

const KernelRegistration kRegistered(AllOf(AttendInt4Kernel));

}  // namespace bulkhead::cuda
