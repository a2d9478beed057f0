#include "kernels/cuda/peer_sum.h"

#include "base/check.h"
#include "intrinsics.h"
#include "kernels/cuda/peer_sum.cuh"
#include "kernels/cuda/registered_kernels.h"
#include "memory/cuda_driver.h"

namespace bulkhead {
namespace cuda {
namespace {

// Four elements per thread. The same thread reads and writes them.
template <int kRanks>
BH_KERNEL(kPeerThreads)
SumPeers(PeerSumParameters p) {
  GridDependencySynchronize();
  const int at = (int(blockIdx.x) * kPeerThreads + int(threadIdx.x)) * 4;
  const PeerState state = PeerStateOfBlock(p.sums);
  Floats4 x[1] = {};
  if (at + 4 <= p.count) {
    x[0] = LoadFour(p.x + at);
  } else {
    BH_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (at + i < p.count) x[0].v[i] = p.x[at + i];
    }
  }
  if (at < p.count) SendToPeers<kRanks>(p.sums, state, at, x[0]);
  ClearLastSum<kRanks>(p.sums, state);
  if (at < p.count) {
    bool late = false;
    SumOfPeers<kRanks>(p.sums, state, {at}, x, late);
    if (at + 4 <= p.count) {
      StoreFour(p.x + at, x[0]);
    } else {
      BH_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (at + i < p.count) p.x[at + i] = x[0].v[i];
      }
    }
  }
  EndPeerSum(p.sums, state, p.count, /*for_row=*/true);
}

}  // namespace

CudaKernelOf<PeerSumParameters> PeerSumKernel(int size) {
  switch (size) {
    case 2:
      return KernelOf<kPeerThreads>("peer_sum of 2", SumPeers<2>);
    case 3:
      return KernelOf<kPeerThreads>("peer_sum of 3", SumPeers<3>);
    case 4:
      return KernelOf<kPeerThreads>("peer_sum of 4", SumPeers<4>);
    case 5:
      return KernelOf<kPeerThreads>("peer_sum of 5", SumPeers<5>);
    case 6:
      return KernelOf<kPeerThreads>("peer_sum of 6", SumPeers<6>);
    case 7:
      return KernelOf<kPeerThreads>("peer_sum of 7", SumPeers<7>);
    default:
      BH_CHECK(size == kMaxPeers);
      return KernelOf<kPeerThreads>("peer_sum of 8", SumPeers<kMaxPeers>);
  }
}

const KernelRegistration kRegistered(PeerSumKernel(2), PeerSumKernel(3), PeerSumKernel(4),
                                     PeerSumKernel(5), PeerSumKernel(6), PeerSumKernel(7),
                                     PeerSumKernel(8));

}  // namespace cuda

void PeerSum(CudaDriver& driver, const PeerSums& sums, float* x, int64_t count) {
  BH_CHECK(count <= sums.max_elements && count <= kMaxPeerSumElements);
  if (count == 0) return;
  Enqueue(driver, cuda::PeerSumKernel(sums.size),
          {.grid = {kPeerBlocks, 1, 1}, .block = {kPeerThreads, 1, 1}},
          cuda::PeerSumParameters{sums, x, static_cast<int>(count)});
}

}  // namespace bulkhead
