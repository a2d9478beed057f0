// For builds without GPUs of compute capability 9.0.
#include "kernels/attend/cuda_kernels.h"

namespace bulkhead::cuda {

std::optional<AttendLaunch> AttendByWarpgroupsKernel(KvFormat /*format*/, int /*head_dim*/,
                                                     AttendWork /*work*/) {
  return std::nullopt;
}

}  // namespace bulkhead::cuda
