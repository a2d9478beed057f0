// Sums between the devices of a host by our own kernel (memory/peer_sums.h): one launch, up to
// kMaxPeerSumElements.
#pragma once

#include <stdint.h>

#include "memory/cuda_kernel.h"
#include "memory/matrix.h"
#include "memory/peer_sums.h"
#include "memory/residual_norm.h"

namespace bulkhead {

class CudaDriver;

namespace cuda {

struct PeerSumParameters {
  PeerSums sums;
  float* x = nullptr;  // [count], 16-byte aligned: this rank's partial sum, then the sum
  int count = 0;
};
// For 2 to kMaxPeers devices.
CudaKernelOf<PeerSumParameters> PeerSumKernel(int size);

}  // namespace cuda

// Adds the ranks' `count` elements in the order of comm/communicator.h, in place. Every rank of the
// group must call it, in the same order, with the same count.
void PeerSum(CudaDriver& driver, const PeerSums& sums, float* x, int64_t count);

// Backend::AddResidualNorm of that sum, with the same bits, if sums.NormsRows; the sum itself is
// not stored. `partial`: dense; 16-byte aligned like the other rows.
void PeerSumNorm(CudaDriver& driver, const PeerSums& sums, ConstMatrixView partial,
                 const ResidualNorm& norm);

}  // namespace bulkhead
