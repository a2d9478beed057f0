// The two kernels of attention over a latent cache (cuda_kernels.h).
#include "kernels/attend/latent.cuh"

#include "kernels/attend/attend_blocks.cuh"
#include "kernels/cuda/registered_kernels.h"

namespace bulkhead::cuda {
namespace {

// Blocks of LatentDecode on a multiprocessor, where it has shared memory for them.
template <int kTiles>
inline constexpr int kLatentSharing = kTiles == 2 ? 2 : 1;

template <KvFormat kFormat, int kTiles>
BH_KERNEL_SHARING(kLatentThreads, kLatentSharing<kTiles>)
LatentDecode(AttendParameters p) {
  GridDependencySynchronize();
  ForSplitsOfBlock(
      p, [&](const Columns& columns, int kv_head, const CacheRange& range, const auto& put) {
        AttendOverLatents<kFormat, kTiles>(p, columns, kv_head, range, put);
      });
}

template <KvFormat kFormat, int kTiles>
BH_KERNEL(kLatentThreads)
LatentPrefill(AttendParameters p) {
  GridDependencySynchronize();
  ForTokensOfBlock(
      p, [&](const Columns& columns, int kv_head, const CacheRange& range, const auto& put) {
        AttendOverLatents<kFormat, kTiles>(p, columns, kv_head, range, put);
      });
}

template <KvFormat kFormat, int kTiles>
AttendLaunch LaunchOf(const char* name, AttendWork work) {
  CudaKernelOf<AttendParameters> kernel =
      KernelOf<kLatentThreads>(name, LatentDecode<kFormat, kTiles>);
  int sharing = kLatentSharing<kTiles>;
  if constexpr (kTiles != 4) {
    if (work == AttendWork::kPrefill) {
      kernel = KernelOf<kLatentThreads>(name, LatentPrefill<kFormat, kTiles>);
      sharing = 1;
    }
  }
  return {kernel, LatentShape<kTiles>::kBytes, sharing, kLatentThreads};
}

template <KvFormat kFormat>
AttendLaunch LaunchOfFormat(const char* name, int column_tiles, AttendWork work) {
  if (column_tiles == 2) return LaunchOf<kFormat, 2>(name, work);
  if (column_tiles == 4) return LaunchOf<kFormat, 4>(name, work);
  return LaunchOf<kFormat, 8>(name, work);
}

}  // namespace

AttendLaunch AttendLatentKernel(KvFormat format, int column_tiles, AttendWork work) {
  switch (format) {
    case KvFormat::kF16:
      return LaunchOfFormat<KvFormat::kF16>("attend latent f16", column_tiles, work);
    case KvFormat::kFP8:
      return LaunchOfFormat<KvFormat::kFP8>("attend latent fp8", column_tiles, work);
    default:
      return LaunchOfFormat<KvFormat::kBF16>("attend latent bf16", column_tiles, work);
  }
}

const KernelRegistration kRegistered([] {
  std::vector<CudaKernel> kernels;
  for (const KvFormat format : {KvFormat::kBF16, KvFormat::kF16, KvFormat::kFP8}) {
    for (const int column_tiles : {2, 4, 8}) {
      kernels.push_back(
          AttendLatentKernel(format, column_tiles, AttendWork::kDecode).kernel.kernel);
    }
    for (const int column_tiles : {2, 8}) {
      kernels.push_back(
          AttendLatentKernel(format, column_tiles, AttendWork::kPrefill).kernel.kernel);
    }
  }
  return kernels;
}());

}  // namespace bulkhead::cuda
