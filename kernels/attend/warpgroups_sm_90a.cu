// Attention of several tokens by the products of warpgroups (cuda_kernels.h).
#include "kernels/attend/warpgroups.cuh"

#include "kernels/attend/attend_blocks.cuh"
#include "kernels/cuda/registered_kernels.h"

namespace bulkhead::cuda {
namespace {

template <int kDims>
using ShapeOf = WarpgroupShape<kDims, 128, 2>;

template <KvFormat kFormat, int kDims>
BH_KERNEL(ShapeOf<kDims>::kThreads)
WarpgroupPrefill(AttendParameters p) {
  GridDependencySynchronize();
  AttendByWarpgroups<kFormat, ShapeOf<kDims>>(p,
                                              [&](const auto& over) { ForTokensOfBlock(p, over); });
}

// Splits of sequences of several tokens, one for each block.
template <KvFormat kFormat, int kDims>
BH_KERNEL(ShapeOf<kDims>::kThreads)
WarpgroupSplitPrefill(AttendParameters p) {
  GridDependencySynchronize();
  AttendByWarpgroups<kFormat, ShapeOf<kDims>>(
      p, [&](const auto& over) { ForSplit(p, int(blockIdx.x), over); });
}

template <KvFormat kFormat, int kDims>
AttendLaunch LaunchOf(const char* name, AttendWork work) {
  using Shape = ShapeOf<kDims>;
  static_assert(Shape::kColumns == kWarpgroupColumns);
  CudaKernelOf<AttendParameters> kernel =
      work == AttendWork::kSplitPrefill
          ? KernelOf<Shape::kThreads>(name, WarpgroupSplitPrefill<kFormat, kDims>)
          : KernelOf<Shape::kThreads>(name, WarpgroupPrefill<kFormat, kDims>);
  kernel.kernel.only_capability = 90;
  return {kernel, Shape::kBytes, 1, Shape::kThreads};
}

template <KvFormat kFormat>
AttendLaunch LaunchOfFormat(const char* name, int head_dim, AttendWork work) {
  return head_dim == 64 ? LaunchOf<kFormat, 64>(name, work) : LaunchOf<kFormat, 128>(name, work);
}

}  // namespace

std::optional<AttendLaunch> AttendByWarpgroupsKernel(KvFormat format, int head_dim,
                                                     AttendWork work) {
  if (head_dim != 64 && head_dim != 128) return std::nullopt;
  if (format == KvFormat::kBF16) {
    return LaunchOfFormat<KvFormat::kBF16>("attend warpgroups bf16", head_dim, work);
  }
  if (format == KvFormat::kF16) {
    return LaunchOfFormat<KvFormat::kF16>("attend warpgroups f16", head_dim, work);
  }
  return std::nullopt;
}

const KernelRegistration kRegistered([] {
  std::vector<CudaKernel> kernels;
  for (const KvFormat format : {KvFormat::kBF16, KvFormat::kF16}) {
    for (const int head_dim : {64, 128}) {
      for (const AttendWork work : {AttendWork::kSplitPrefill, AttendWork::kPrefill}) {
        kernels.push_back(AttendByWarpgroupsKernel(format, head_dim, work)->kernel.kernel);
      }
    }
  }
  return kernels;
}());

}  // namespace bulkhead::cuda
