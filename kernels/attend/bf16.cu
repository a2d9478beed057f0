#include "kernels/attend/attend.cuh"

namespace bulkhead::cuda {

AttendLaunch AttendBF16Kernel(int head_dim, int column_tiles, AttendWork work) {
  return AttendLaunchFor<KvFormat::kBF16>("attend bf16", head_dim, column_tiles, work);
}

const KernelRegistration kRegistered(AllOf(AttendBF16Kernel));

}  // namespace bulkhead::cuda
