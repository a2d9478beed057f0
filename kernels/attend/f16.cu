#include "kernels/attend/attend.cuh"

namespace bulkhead::cuda {

AttendLaunch AttendF16Kernel(int head_dim, int column_tiles, AttendWork work) {
  return AttendLaunchFor<KvFormat::kF16>("attend f16", head_dim, column_tiles, work);
}

const KernelRegistration kRegistered(AllOf(AttendF16Kernel));

}  // namespace bulkhead::cuda
