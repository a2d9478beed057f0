#include "base/check.h"
#include "intrinsics.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/peer_sum.cuh"
#include "kernels/cuda/peer_sum.h"
#include "kernels/rms_norm/row_norm.cuh"

namespace bulkhead {
namespace cuda {

struct PeerSumNormParameters {
  PeerSums sums;
  RmsNormParameters norm;  // `addend` is this rank's partial sum, dense
  int rows = 0;
  int vectors_of_sender = 0;  // at most kPeerThreads
};

namespace {

static_assert(kNormThreads == kPeerThreads && kMaxNormVec4Cols == kMaxPeerNormCols);

template <int kRanks>
BH_DEVICE void SendPart(const PeerSumNormParameters& p) {
  GridDependencySynchronize();
  const PeerState state = PeerStateOfBlock(p.sums);
  const int count = p.rows * p.norm.width;
  const int at = (int(blockIdx.x) * p.vectors_of_sender + int(threadIdx.x)) * 4;
  if (int(threadIdx.x) < p.vectors_of_sender && at < count) {
    SendToPeers<kRanks>(p.sums, state, at, LoadFour(p.norm.addend.data + at));
  }
  ClearLastSum<kRanks>(p.sums, state);
  EndPeerSum(p.sums, state, count, /*for_row=*/int(blockIdx.x) >= p.rows);
}

template <int kRanks>
BH_DEVICE void SumAndNormRow(const PeerSumNormParameters& p, int row) {
  constexpr int kAtOnce = kRanks <= 5 ? 2 : 1;  // vectors: more do not fit into registers
  const int width = p.norm.width;
  Floats4 weights[kNormVec4];
  LoadRow(p.norm.weight, width, weights);  // no kernel writes the weight
  GridDependencySynchronize();
  const PeerState state = PeerStateOfBlock(p.sums);
  Floats4 x[kNormVec4];
  Floats4 sums[kNormVec4];
  LoadRow(p.norm.x.data + row * p.norm.x.stride, width, x);
  LoadRow(p.norm.addend.data + row * width, width, sums);
  bool late = false;
  BH_UNROLL
  for (int j = 0; j < kNormVec4; j += kAtOnce) {
    int at[kAtOnce];
    Floats4 some[kAtOnce];
    BH_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      at[i] = ColumnOf(j + i) < width ? row * width + ColumnOf(j + i) : -1;
      some[i] = sums[j + i];
    }
    SumOfPeers<kRanks>(p.sums, state, at, some, late);
    BH_UNROLL
    for (int i = 0; i < kAtOnce; ++i) sums[j + i] = some[i];
  }
  AddToRow(p.norm, row, sums, x);
  NormOfRow(p.norm, row, weights, x);
  EndPeerSum(p.sums, state, p.rows * width, /*for_row=*/false);
}

// kPeerBlocks blocks send, on as many multiprocessors; the others add and norm one row each.
template <int kRanks>
BH_KERNEL(kPeerThreads)
SumPeersNorm(PeerSumNormParameters p) {
  const int row = int(blockIdx.x) - kPeerBlocks;
  if (row < 0) {
    SendPart<kRanks>(p);
  } else {
    SumAndNormRow<kRanks>(p, row);
  }
}

CudaKernelOf<PeerSumNormParameters> PeerSumNormKernel(int size) {
  switch (size) {
    case 2:
      return KernelOf<kPeerThreads>("peer_sum_norm of 2", SumPeersNorm<2>);
    case 3:
      return KernelOf<kPeerThreads>("peer_sum_norm of 3", SumPeersNorm<3>);
    case 4:
      return KernelOf<kPeerThreads>("peer_sum_norm of 4", SumPeersNorm<4>);
    case 5:
      return KernelOf<kPeerThreads>("peer_sum_norm of 5", SumPeersNorm<5>);
    case 6:
      return KernelOf<kPeerThreads>("peer_sum_norm of 6", SumPeersNorm<6>);
    case 7:
      return KernelOf<kPeerThreads>("peer_sum_norm of 7", SumPeersNorm<7>);
    default:
      BH_CHECK(size == kMaxPeers);
      return KernelOf<kPeerThreads>("peer_sum_norm of 8", SumPeersNorm<kMaxPeers>);
  }
}

const KernelRegistration kRegistered(PeerSumNormKernel(2), PeerSumNormKernel(3),
                                     PeerSumNormKernel(4), PeerSumNormKernel(5),
                                     PeerSumNormKernel(6), PeerSumNormKernel(7),
                                     PeerSumNormKernel(8));

}  // namespace
}  // namespace cuda

void PeerSumNorm(CudaDriver& driver, const PeerSums& sums, ConstMatrixView partial,
                 const ResidualNorm& norm) {
  const int64_t rows = partial.rows();
  const int64_t cols = partial.cols();
  BH_CHECK(sums.NormsRows(rows, cols) && partial.row_stride() == cols);
  for (const ConstMatrixView rows_of : {ConstMatrixView(norm.hidden), ConstMatrixView(norm.normed)})
    BH_CHECK(rows_of.rows() == rows && rows_of.cols() == cols && cuda::IsVec4(rows_of));
  BH_CHECK(cuda::IsVec4(partial) && cuda::IsVec4(norm.bias) && cuda::IsVec4(norm.weight));
  cuda::PeerSumNormParameters p;
  p.sums = sums;
  p.rows = static_cast<int>(rows);
  p.norm.x = cuda::RowsOf(ConstMatrixView(norm.hidden));
  p.norm.addend = cuda::RowsOf(partial);
  p.norm.bias = cuda::VectorOf(norm.bias);
  p.norm.factor = norm.factor;
  p.norm.added = cuda::RowsOf(norm.hidden);
  p.norm.weight = norm.weight.F32();
  p.norm.epsilon = norm.epsilon;
  p.norm.width = static_cast<int>(cols);
  p.norm.out = cuda::OutRowsOf(norm.normed);
  // Whole warps.
  p.vectors_of_sender =
      static_cast<int>(RoundUp(CeilDiv(rows * cols / 4, int64_t{kPeerBlocks}), cuda::kWarp));
  Enqueue(driver, cuda::PeerSumNormKernel(sums.size),
          {.grid = {kPeerBlocks + p.rows, 1, 1},
           .block = {kPeerThreads, 1, 1},
           .shared_bytes = cuda::kNormSharedBytes,
           .in_order = true},
          p);
}

}  // namespace bulkhead
