#include "kernels/attend/attend.cuh"

namespace bulkhead::cuda {

AttendLaunch AttendFp8Kernel(int head_dim, int column_tiles, AttendWork work) {
  return AttendLaunchFor<KvFormat::kFP8>("attend fp8", head_dim, column_tiles, work);
}

const KernelRegistration kRegistered(AllOf(AttendFp8Kernel));

}  // namespace bulkhead::cuda
