#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {

struct ScaleAndCapParameters {
  float scale = 1;
  float soft_cap = 0;
  int width = 0;
  Rows x;
};
struct ScaleByParameters {
  const float* factor = nullptr;
  int width = 0;
  Rows x;
};

namespace {

BH_KERNEL(kRowThreads) ScaleAndCap(ScaleAndCapParameters p) {
  GridDependencySynchronize();
  float* const x = p.x.data + int(blockIdx.x) * p.x.stride;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads) {
    const float scaled = x[i] * p.scale;
    x[i] = p.soft_cap == 0.0F ? scaled : p.soft_cap * tanhf(scaled / p.soft_cap);
  }
}

BH_KERNEL(kRowThreads) ScaleBy(ScaleByParameters p) {
  const float factor = *p.factor;  // a weight
  GridDependencySynchronize();
  float* const x = p.x.data + int(blockIdx.x) * p.x.stride;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads) x[i] *= factor;
}

CudaKernelOf<ScaleByParameters> ScaleByKernel() {
  return KernelOf<kRowThreads>("scale_by", ScaleBy);
}
CudaKernelOf<ScaleAndCapParameters> ScaleAndCapKernel() {
  return KernelOf<kRowThreads>("scale_and_cap", ScaleAndCap);
}

const KernelRegistration kRegistered(ScaleAndCapKernel(), ScaleByKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::ScaleAndCap(float scale, float soft_cap, MatrixView x) {
  if (x.empty()) return;
  Enqueue(driver_, cuda::ScaleAndCapKernel(), cuda::OneBlockPerRow(x),
          {scale, soft_cap, static_cast<int>(x.cols()), cuda::RowsOf(x)});
}

void CudaBackend::ScaleBy(const float* factor, MatrixView x) {
  if (x.empty()) return;
  Enqueue(driver_, cuda::ScaleByKernel(), cuda::OneBlockPerRow(x),
          {factor, static_cast<int>(x.cols()), cuda::RowsOf(x)});
}

}  // namespace bulkhead
