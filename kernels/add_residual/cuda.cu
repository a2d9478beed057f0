#include "intrinsics.h"
#include "kernels/add_residual/op.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {
namespace {

BH_KERNEL(kRowThreads) Add(AddParameters p) {
  GridDependencySynchronize();
  const float* const addend = p.addend.data + int(blockIdx.x) * p.addend.stride;
  float* const x = p.x.data + int(blockIdx.x) * p.x.stride;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads) {
    x[i] += p.factor * (p.bias == nullptr ? addend[i] : addend[i] + p.bias[i]);
  }
}

}  // namespace

CudaKernelOf<AddParameters> AddKernel() { return KernelOf<kRowThreads>("add", Add); }

const KernelRegistration kRegistered(AddKernel());

}  // namespace cuda

void CudaBackend::AddResidual(ConstMatrixView sum, ConstMatrixView bias, float factor,
                              MatrixView hidden) {
  if (hidden.empty()) return;
  Enqueue(driver_, cuda::AddKernel(), cuda::OneBlockPerRow(hidden),
          {cuda::RowsOf(sum), cuda::VectorOf(bias), factor, static_cast<int>(hidden.cols()),
           cuda::RowsOf(hidden)});
}

}  // namespace bulkhead
