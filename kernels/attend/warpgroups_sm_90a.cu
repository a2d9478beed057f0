// Attention of several tokens by warpgroup products (cuda_kernels.h).
#include "kernels/attend/warpgroups.cuh"

#include <type_traits>

#include "kernels/attend/attend_blocks.cuh"
#include "kernels/cuda/registered_kernels.h"

namespace bulkhead::cuda {
namespace {

template <KvFormat kFormat, int kDims>
using ShapeOf = std::conditional_t<KvElementBits(kFormat) <= 8, WarpgroupCodesShape<kFormat, kDims>,
                                   WarpgroupShape<kDims, 128, 2>>;

template <KvFormat kFormat, int kDims>
BH_KERNEL((ShapeOf<kFormat, kDims>::kThreads))
WarpgroupPrefill(AttendParameters p) {
  GridDependencySynchronize();
  AttendByWarpgroups<kFormat, ShapeOf<kFormat, kDims>>(
      p, [&](const auto& over) { ForTokensOfBlock(p, over); });
}

// Splits of sequences of several tokens, one per block.
template <KvFormat kFormat, int kDims>
BH_KERNEL((ShapeOf<kFormat, kDims>::kThreads))
WarpgroupSplitPrefill(AttendParameters p) {
  GridDependencySynchronize();
  AttendByWarpgroups<kFormat, ShapeOf<kFormat, kDims>>(
      p, [&](const auto& over) { ForSplit(p, int(blockIdx.x), over); });
}

template <KvFormat kFormat, int kDims>
AttendLaunch LaunchOf(const char* name, AttendWork work) {
  using Shape = ShapeOf<kFormat, kDims>;
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
  switch (format) {
    case KvFormat::kBF16:
      return LaunchOfFormat<KvFormat::kBF16>("attend warpgroups bf16", head_dim, work);
    case KvFormat::kF16:
      return LaunchOfFormat<KvFormat::kF16>("attend warpgroups f16", head_dim, work);
    case KvFormat::kInt8:
      return LaunchOfFormat<KvFormat::kInt8>("attend warpgroups int8", head_dim, work);
    case KvFormat::kInt4:
      return LaunchOfFormat<KvFormat::kInt4>("attend warpgroups int4", head_dim, work);
    case KvFormat::kFP8:
      return LaunchOfFormat<KvFormat::kFP8>("attend warpgroups fp8", head_dim, work);
    case KvFormat::kF32:
      break;
  }
  return std::nullopt;
}

const KernelRegistration kRegistered([] {
  std::vector<CudaKernel> kernels;
  for (const KvFormat format :
       {KvFormat::kBF16, KvFormat::kF16, KvFormat::kInt8, KvFormat::kInt4, KvFormat::kFP8}) {
    for (const int head_dim : {64, 128}) {
      for (const AttendWork work : {AttendWork::kSplitPrefill, AttendWork::kPrefill}) {
        kernels.push_back(AttendByWarpgroupsKernel(format, head_dim, work)->kernel.kernel);
      }
    }
  }
  return kernels;
}());

}  // namespace bulkhead::cuda
