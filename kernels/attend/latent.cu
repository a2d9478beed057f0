// The two kernels of attention over a latent cache (cuda_kernels.h).
#include "kernels/attend/wide.cuh"
#include "kernels/cuda/registered_kernels.h"

namespace bulkhead::cuda {
namespace {

template <KvFormat kFormat, int kTiles>
AttendLaunch LaunchOf(const char* name, AttendWork work) {
  // Limits of a block on sm_86, and on sm_80.
  using Shape = WideShape<LatentTile<kFormat>, kTiles>;
  static_assert(Shape::kBytes <= (kTiles == 2 ? 99 << 10 : 163 << 10));
  return WideLaunch<LatentTile<kFormat>, kTiles>(name, work);
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
