#include "base/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/peer_sum.h"
#include "kernels/cuda/round_sum.h"
#include "kernels/cuda/write_late.h"

namespace bulkhead {

std::unique_ptr<Backend> NewCudaBackend(Device&, CudaDriver&, std::unique_ptr<GemmLibrary>, bool) {
  BH_CHECK(false);  // there is no CudaDriver in this build
}

void WriteLate(CudaDriver&, float*, int64_t, int64_t, int, int) { BH_CHECK(false); }

void RoundSum(CudaDriver&, const float*, uint16_t*, int64_t) { BH_CHECK(false); }

void WidenSum(CudaDriver&, const uint16_t*, float*, int64_t) { BH_CHECK(false); }

void PeerSum(CudaDriver&, const PeerSums&, float*, int64_t) { BH_CHECK(false); }

void PeerSumNorm(CudaDriver&, const PeerSums&, ConstMatrixView, const ResidualNorm&) {
  BH_CHECK(false);
}

}  // namespace bulkhead
