#include "intrinsics.h"
#include "kernels/append_kv/append_kv.cuh"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {
namespace {

template <KvFormat kFormat>
BH_KERNEL(kHeadWarps* kWarp)
AppendKv(AppendKvParameters p) {
  GridDependencySynchronize();
  const int unit = int(blockIdx.y) * kHeadWarps + WarpIndex();
  if (unit >= p.parts * p.num_kv_heads) return;
  const float* const row = p.qkv.data + int(blockIdx.x) * p.qkv.stride;
  AppendHead<kFormat>(p, unit, row + static_cast<int64_t>(p.num_heads + unit) * p.cache.head_dim);
}

CudaKernelOf<AppendKvParameters> AppendKvKernel(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return KernelOf<kHeadWarps * kWarp>("append_kv f32", AppendKv<KvFormat::kF32>);
    case KvFormat::kF16:
      return KernelOf<kHeadWarps * kWarp>("append_kv f16", AppendKv<KvFormat::kF16>);
    case KvFormat::kInt8:
      return KernelOf<kHeadWarps * kWarp>("append_kv int8", AppendKv<KvFormat::kInt8>);
    case KvFormat::kInt4:
      return KernelOf<kHeadWarps * kWarp>("append_kv int4", AppendKv<KvFormat::kInt4>);
    case KvFormat::kFP8:
      return KernelOf<kHeadWarps * kWarp>("append_kv fp8", AppendKv<KvFormat::kFP8>);
    case KvFormat::kBF16:
      break;
  }
  return KernelOf<kHeadWarps * kWarp>("append_kv bf16", AppendKv<KvFormat::kBF16>);
}

const KernelRegistration kRegistered(AppendKvKernel(KvFormat::kBF16),
                                     AppendKvKernel(KvFormat::kF16),
                                     AppendKvKernel(KvFormat::kInt8),
                                     AppendKvKernel(KvFormat::kInt4),
                                     AppendKvKernel(KvFormat::kFP8));

}  // namespace
}  // namespace cuda

void CudaBackend::AppendKv(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                           const KvLayerView& kv) {
  if (qkv.empty() || heads.num_kv_heads == 0) return;
  Enqueue(driver_, cuda::AppendKvKernel(kv.geometry.format),
          cuda::OneWarpPerHead(index.num_tokens, kv.geometry.num_parts() * heads.num_kv_heads),
          {cuda::CacheOf(index, kv), cuda::RowsOf(qkv), heads.num_heads, heads.num_kv_heads,
           kv.geometry.num_parts()});
}

}  // namespace bulkhead
