#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {

struct SelectRowsParameters {
  ConstRows x;
  const int32_t* rows = nullptr;
  int width = 0;
  Rows out;
};

namespace {

BH_KERNEL(kRowThreads) SelectRows(SelectRowsParameters p) {
  GridDependencySynchronize();
  const float* const x = p.x.data + p.rows[int(blockIdx.x)] * p.x.stride;
  float* const out = p.out.data + int(blockIdx.x) * p.out.stride;
  for (int i = int(threadIdx.x); i < p.width; i += kRowThreads) out[i] = x[i];
}

CudaKernelOf<SelectRowsParameters> SelectRowsKernel() {
  return KernelOf<kRowThreads>("select_rows", SelectRows);
}

const KernelRegistration kRegistered(SelectRowsKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::SelectRows(ConstMatrixView x, const int32_t* rows, MatrixView out) {
  if (out.empty()) return;
  Enqueue(driver_, cuda::SelectRowsKernel(), cuda::OneBlockPerRow(out),
          {cuda::RowsOf(x), rows, static_cast<int>(out.cols()), cuda::RowsOf(out)});
}

}  // namespace bulkhead
