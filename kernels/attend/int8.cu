#include "kernels/attend/attend.cuh"

namespace bulkhead::cuda {

AttendLaunch AttendInt8Kernel(int head_dim, int column_tiles, AttendWork work) {
  return AttendLaunchFor<KvFormat::kInt8>("attend int8", head_dim, column_tiles, work);
}

const KernelRegistration kRegistered(AllOf(AttendInt8Kernel));

}  // namespace bulkhead::cuda
