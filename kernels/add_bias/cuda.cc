#include "kernels/add_residual/op.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {

void CudaBackend::AddBias(ConstMatrixView bias, MatrixView x) {
  if (x.empty()) return;
  Enqueue(driver_, cuda::AddKernel(), cuda::OneBlockPerRow(x),
          {{bias.F32(), 0}, nullptr, 1, static_cast<int>(x.cols()), cuda::RowsOf(x)});
}

}  // namespace bulkhead
