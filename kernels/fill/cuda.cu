#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {

struct FillParameters {
  float value = 0;
  int width = 0;
  Rows x;
};

namespace {

BH_KERNEL(kRowThreads) Fill(FillParameters p) {
  GridDependencySynchronize();
  float* const x = p.x.data + int(blockIdx.x) * p.x.stride;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads) x[i] = p.value;
}

CudaKernelOf<FillParameters> FillKernel() { return KernelOf<kRowThreads>("fill", Fill); }

const KernelRegistration kRegistered(FillKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::Fill(float value, MatrixView x) {
  if (x.empty()) return;
  Enqueue(driver_, cuda::FillKernel(), cuda::OneBlockPerRow(x),
          {value, static_cast<int>(x.cols()), cuda::RowsOf(x)});
}

}  // namespace bulkhead
